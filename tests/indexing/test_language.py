"""The language of a document: what the file or its bearer says, else what the visible text tells, else nothing."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import docx
import pytest

from indexing.chunk import Chunking
from indexing.documents import list_documents, show_document
from indexing.embed import EmbeddingSettings, Vectors, load_embedder
from indexing.ingest import Pipeline, Source, put_document
from indexing.items import list_items
from indexing.language import _pieces, _visible, language_of
from indexing.parse import Parsed, parse
from indexing.parse.model import Block, Kind
from indexing.parse.tags import stated
from tests.indexing.parse_files import archive, page, pdf
from tests.support.people import NOW, Company

EMBEDDER = load_embedder(EmbeddingSettings(model="hashing:64"))
PIPELINE = Pipeline(EMBEDDER, clock=lambda: NOW)

ENGLISH = "Employees who want to take annual leave ask their manager at least two weeks before the first day of it."
GERMAN = (
    "Wer Urlaub nehmen möchte, fragt spätestens zwei Wochen vor dem ersten Tag bei der zuständigen Führungskraft an."
)
TEXTS = {
    "en": ENGLISH,
    "de": GERMAN,
    "fr": "Les salariés qui souhaitent prendre des congés doivent en faire la demande deux semaines à l'avance.",
    "es": "Los empleados que quieran tomar vacaciones deben solicitarlas con dos semanas de antelación.",
    "tr": "Yıllık izin kullanmak isteyen çalışanlar, izinden en az iki hafta önce yöneticilerine başvurmalıdır.",
    "vi": "Nhân viên muốn nghỉ phép năm phải xin phép người quản lý ít nhất hai tuần trước ngày nghỉ đầu tiên.",
    "ru": "Сотрудники, которые хотят взять ежегодный отпуск, обращаются к руководителю не позднее чем за две недели.",
    "uk": "Працівники, які хочуть узяти щорічну відпустку, звертаються до керівника щонайменше за два тижні.",
    "el": "Οι εργαζόμενοι που θέλουν να πάρουν άδεια ζητούν την έγκριση του προϊσταμένου τους δύο εβδομάδες νωρίτερα.",
    "ar": "على الموظفين الراغبين في أخذ إجازة سنوية أن يطلبوها من مديرهم قبل أسبوعين على الأقل من أول يوم فيها.",
    "fa": "کارکنانی که می‌خواهند به مرخصی سالانه بروند باید دست‌کم دو هفته پیش از آن از مدیر خود درخواست کنند.",
    "he": "עובדים המעוניינים לצאת לחופשה שנתית יבקשו זאת מהמנהל שלהם לפחות שבועיים לפני היום הראשון שלה.",
    "hi": "जो कर्मचारी वार्षिक अवकाश लेना चाहते हैं, उन्हें कम से कम दो सप्ताह पहले अपने प्रबंधक से अनुमति लेनी होगी।",
    "th": "พนักงานที่ต้องการลาพักร้อนต้องแจ้งหัวหน้างานล่วงหน้าอย่างน้อยสองสัปดาห์ก่อนวันแรกของการลา",
    "zh": "希望休年假的员工须至少提前两周向其主管提出申请。",
    "ja": "年次休暇を取得したい従業員は、少なくとも二週間前までに上司に申請してください。",
    "ko": "연차 휴가를 사용하려는 직원은 적어도 두 주 전에 관리자에게 신청해야 합니다.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_in_many_scripts(language: str) -> None:
    assert language_of(TEXTS[language]) == language


@pytest.mark.parametrize(
    "text",
    [
        "", "OK", "Guten Morgen", "2024 12 31 17.5 998877 EUR", "SKU-1234 ABX QRT 99", "\U0001f642" * 40, "\ud800",
        "Smith, Jones, Müller, Garcia, Rossi, Nguyen, Ivanov", f"{ENGLISH}\n{GERMAN}", f"{TEXTS['zh'] * 4}\n{ENGLISH}",
        f"{TEXTS['ru'] * 5}\n{GERMAN * 5}",
    ],
)  # fmt: skip
def test_what_is_short_mixed_or_no_prose_tells_none(text: str) -> None:
    assert language_of(text) is None


def test_a_quotation_in_a_long_text_does_not_hide_its_language() -> None:
    assert language_of(f"{GERMAN * 12}\n{ENGLISH}\n{GERMAN * 12}") == "de"


def test_hidden_text_and_code_count_for_nothing() -> None:
    text = f"{GERMAN}\n\n{ENGLISH * 9}"
    start = text.index(ENGLISH)
    for kind, hidden, expected in (
        (Kind.PARAGRAPH, True, "de"),
        (Kind.CODE, False, "de"),
        (Kind.PARAGRAPH, False, "en"),
    ):
        assert language_of(text, [Block(start, len(text), kind, hidden=hidden)]) == expected


@pytest.mark.parametrize(
    ("tags", "language"),
    [
        (["de"], "de"), (["de-AT"], "de"), (["DE_ch"], "de"), (["deu"], "de"), (["ger"], "de"), (["zh-Hant-TW"], "zh"),
        (["iw"], "he"), (["ckb"], "ckb"), (["en", "en-US"], "en"), (["en", "de"], None), (["und"], None),
        (["mul"], None),
        (["x-klingon"], None), (["German"], None), ([""], None), ([None, 5, b"de"], None), ([], None),
        (["de;en"], None), (["\u017fv"], None), (["\u0130t"], None), (["\u212ao"], None), (["de-\u017fv"], None),
    ],
)  # fmt: skip
def test_tags(tags: list[object], language: str | None) -> None:
    assert stated(*tags).get("language") == language


def word_file(language: str) -> bytes:
    document = docx.Document()
    document.add_paragraph(ENGLISH)
    document.core_properties.language = language
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def open_document(language: str) -> bytes:
    office = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    text = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    return archive(
        {
            "META-INF/manifest.xml": "<manifest/>",
            "content.xml": f"<office:document-content {office} {text}><office:body><office:text>"
            f"<text:p>{ENGLISH}</text:p></office:text></office:body></office:document-content>",
            "meta.xml": f'<office:document-meta {office} xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta>'
            f"<dc:language>{language}</dc:language></office:meta></office:document-meta>",
        }
    )


def page_of(text: str) -> str:
    return f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{text}</p></body></html>'


def epub_in(language: str) -> bytes:
    container = '<container xmlns="c"><rootfiles><rootfile full-path="book.opf"/></rootfiles></container>'
    opf = (
        f'<package xmlns="o" xmlns:dc="dc"><metadata><dc:language>{language}</dc:language></metadata><manifest>'
        '<item id="one" href="one.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="one"/></spine></package>'
    )
    return archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "book.opf": opf,
            "one.xhtml": page_of(ENGLISH),
        }
    )


STATING = {
    "a.html": f'<html lang="nl-BE"><body lang="en-US"><p>{ENGLISH}</p></body></html>'.encode(),
    "b.docx": word_file("nl-NL"),
    "c.epub": epub_in("nld"),
    "d.pdf": pdf(page(ENGLISH), extra=b"/Lang (nl)"),
    "e.odt": open_document("nl-NL"),
    "f.xml": f'<note xml:lang="nl"><p>{ENGLISH}</p></note>'.encode(),
    "g.md": f"---\ntitle: T\nlang: nl\n---\n{ENGLISH}\n".encode(),
}


@pytest.mark.parametrize("name", STATING)
def test_what_a_file_states_is_kept(name: str) -> None:
    [parsed] = parse(name, STATING[name])
    assert isinstance(parsed, Parsed)
    assert parsed.metadata["language"] == "nl"


def put(company: Company, name: str, data: str | bytes, pipeline: Pipeline = PIPELINE, **metadata: Any) -> None:
    content = data.encode() if isinstance(data, str) else data
    put_document(company.handle, pipeline, Source(name, content, metadata=metadata))


def language(company: Company, name: str) -> object:
    return show_document(company.handle, name).metadata.get("language")


def test_a_statement_comes_before_the_text_and_the_bearer_before_the_file(acme: Company) -> None:
    put(acme, "told.txt", GERMAN)
    put(acme, "file.html", STATING["a.html"])
    put(acme, "both.html", STATING["a.html"], language="xx-Any")
    put(acme, "none.txt", "17 x 4")
    assert [language(acme, name) for name in ("told.txt", "file.html", "both.html", "none.txt")] == [
        "de", "nl", "xx-Any", None,
    ]  # fmt: skip
    listed = {one.name: one.language for one in list_documents(acme.handle)}
    assert listed == {"told.txt": "de", "file.html": "nl", "both.html": "xx-Any", "none.txt": None}
    assert {item.name: item.language for item in list_items(acme.handle, "indexed")} == listed


def test_each_document_of_a_file_has_its_own_and_what_is_brought_beats_what_is_told(acme: Company) -> None:
    lines = "\n".join(
        f'{{"id": "{key}", "text": "{text}"{more}}}'
        for key, text, more in (
            ("g", GERMAN, ""),
            ("e", ENGLISH, ""),
            ("s", ENGLISH, ', "metadata": {"language": "sv"}'),
        )
    )
    put(acme, "plain.jsonl", lines)
    assert [language(acme, f"plain.jsonl#{key}") for key in "ges"] == ["de", "en", "sv"]
    put(acme, "brought.jsonl", lines, language="fi")
    assert [language(acme, f"brought.jsonl#{key}") for key in "ges"] == ["fi", "fi", "sv"]


class Counting:
    def __init__(self) -> None:
        self.texts = 0

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        return EMBEDDER.encode(texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(EMBEDDER, name)


def test_a_document_of_before_gets_its_language_when_it_is_read_again_and_nothing_is_embedded(
    acme: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("indexing.ingest.language_of", lambda text, blocks: None)
        put(acme, "a.txt", GERMAN, replace(PIPELINE, chunking=Chunking(target_tokens=180)))
    assert language(acme, "a.txt") is None
    counting = Counting()
    put(acme, "a.txt", GERMAN, replace(PIPELINE, embedder=counting))  # type: ignore[arg-type]
    assert (language(acme, "a.txt"), counting.texts) == ("de", 0)


class Read(list[int]):
    """Counts what is looked at."""

    count = 0

    def __getitem__(self, index: Any) -> Any:
        self.count += 1
        return super().__getitem__(index)


def test_of_very_many_spans_only_those_are_looked_at_that_a_piece_lies_in() -> None:
    words = f"{GERMAN} " * 200
    text = "".join(f"{letter}#" for letter in words)
    visible = _visible(text, [Block(at, at + 1, Kind.PARAGRAPH, hidden=True) for at in range(1, len(text), 2)])
    starts = Read(visible.starts)
    pieces = [piece.replace("\n", "") for piece in _pieces(text, replace(visible, starts=starts))]  # type: ignore[arg-type]
    assert pieces == list(_pieces(words, _visible(words, [])))
    assert (len(visible.starts), len(pieces), starts.count) == (len(words), 12, 12 * 256)
