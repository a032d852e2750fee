"""Three tenants that hold the same in three languages: nothing of one in whatever another is shown or leaves behind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from tests.isolation.parallel import Report, ask_everything, examine, open_site
from tests.isolation.traces import Detector, Library

ENGLISH = (
    (
        "The lighthouse of Marrow Point was built from grey granite in eighteen forty-one.",
        "Who built the lighthouse of Marrow Point, and of which granite?",
    ),
    (
        "Saltwater pearls are sorted by lustre before they are strung on silk thread.",
        "How are saltwater pearls sorted before they are strung?",
    ),
    (
        "The night train to Varna leaves from platform nine at a quarter past eleven.",
        "From which platform does the night train to Varna leave?",
    ),
    (
        "Beekeepers in the valley harvest chestnut honey in the second week of July.",
        "When do beekeepers in the valley harvest chestnut honey?",
    ),
    (
        "The municipal archive keeps land registers for one hundred and thirty years.",
        "How long does the municipal archive keep land registers?",
    ),
    (
        "A glacier mill forms where meltwater bores a vertical shaft into the ice.",
        "Where does a glacier mill form in the ice?",
    ),
    (
        "The orchestra tunes to an oboe because its pitch hardly changes with warmth.",
        "Why does the orchestra tune to an oboe?",
    ),
    (
        "Cork oaks may be stripped of their bark every nine years without harm.",
        "How often may cork oaks be stripped of their bark?",
    ),
    (
        "The ferry carries forty cars and is cancelled when waves exceed three metres.",
        "How many cars does the ferry carry?",
    ),
    (
        "Copper roofs turn green because carbonates form in moist city air.",
        "Why do copper roofs turn green in city air?",
    ),
)
GERMAN = (
    (
        "Der Leuchtturm von Marrow Point wurde achtzehnhunderteinundvierzig aus grauem Granit gebaut.",
        "Wer baute den Leuchtturm von Marrow Point aus grauem Granit?",
    ),
    (
        "Salzwasserperlen werden nach Glanz sortiert, bevor man sie auf Seidenfaden aufzieht.",
        "Wonach werden Salzwasserperlen sortiert?",
    ),
    (
        "Der Nachtzug nach Varna fährt um Viertel nach elf von Bahnsteig neun ab.",
        "Von welchem Bahnsteig fährt der Nachtzug nach Varna ab?",
    ),
    (
        "Die Imker im Tal ernten den Kastanienhonig in der zweiten Juliwoche.",
        "Wann ernten die Imker im Tal den Kastanienhonig?",
    ),
    (
        "Das Stadtarchiv bewahrt Grundbücher einhundertdreißig Jahre lang auf.",
        "Wie lange bewahrt das Stadtarchiv Grundbücher auf?",
    ),
    (
        "Eine Gletschermühle entsteht, wo Schmelzwasser einen senkrechten Schacht ins Eis bohrt.",
        "Wo entsteht eine Gletschermühle im Eis?",
    ),
    (
        "Das Orchester stimmt nach der Oboe, weil Wärme ihre Tonhöhe kaum verändert.",
        "Warum stimmt das Orchester nach der Oboe?",
    ),
    (
        "Korkeichen dürfen alle neun Jahre ohne Schaden geschält werden.",
        "Wie oft dürfen Korkeichen geschält werden?",
    ),
    (
        "Die Fähre befördert vierzig Autos und fällt bei Wellen über drei Metern aus.",
        "Wie viele Autos befördert die Fähre?",
    ),
    (
        "Kupferdächer werden grün, weil sich in feuchter Stadtluft Karbonate bilden.",
        "Warum werden Kupferdächer in der Stadtluft grün?",
    ),
    (
        "Im Winter bleibt die Bergstraße von November bis April für Wagen gesperrt.",
        "Wann bleibt die Bergstraße für Wagen gesperrt?",
    ),
)
CHINESE = (
    (
        "马罗角的灯塔是一八四一年用灰色花岗岩建造的。",
        "马罗角的灯塔是用什么建造的？",
    ),
    (
        "海水珍珠先按光泽分级，然后才穿在丝线上。",
        "海水珍珠先按什么分级？",
    ),
    (
        "开往瓦尔纳的夜间列车十一点一刻从九号站台发车。",
        "开往瓦尔纳的夜间列车从几号站台发车？",
    ),
    (
        "山谷里的养蜂人在七月的第二周采收栗子蜂蜜。",
        "养蜂人什么时候采收栗子蜂蜜？",
    ),
    (
        "市档案馆把土地登记册保存一百三十年。",
        "市档案馆把土地登记册保存多久？",
    ),
    (
        "融水在冰中钻出竖井的地方会形成冰川锅穴。",
        "冰川锅穴在什么地方形成？",
    ),
    (
        "乐队按双簧管调音，因为它的音高很少随温度变化。",
        "乐队为什么按双簧管调音？",
    ),
    (
        "栓皮栎每九年可以剥一次树皮而不受伤害。",
        "栓皮栎每几年可以剥一次树皮？",
    ),
    (
        "渡轮可载四十辆汽车，浪高超过三米时停航。",
        "渡轮可载多少辆汽车？",
    ),
    (
        "铜屋顶变绿是因为潮湿的城市空气中生成了碳酸盐。",
        "铜屋顶为什么变绿？",
    ),
    (
        "冬季里山路从十一月到四月禁止车辆通行。",
        "山路什么时候禁止车辆通行？",
    ),
    (
        "图书馆的借书期限是三周，可以续借两次。",
        "图书馆的借书期限是多久？",
    ),
)


def library(code: str, pairs: tuple[tuple[str, str], ...], width: int = 24, step: int = 7) -> Library:
    questions = tuple((question, number) for number, (_, question) in enumerate(pairs))
    return Library(code, tuple(text for text, _ in pairs), questions, width, step)


LIBRARIES = (library("en", ENGLISH), library("de", GERMAN), library("zh", CHINESE, width=8, step=3))
EN, DE, ZH = LIBRARIES


def run(folder: Path, libraries: tuple[Library, ...], extra: str | None = None) -> Report:
    """Examine a site of `libraries` as if they were `LIBRARIES`; `extra` is logged by a part of the service."""

    async def whole() -> Report:
        async with open_site(folder, libraries, Detector(LIBRARIES), model="hashing:256") as site:
            if extra is not None:
                structlog.get_logger("strongroom.search").warning("slow", text=extra)
            return await examine(site, LIBRARIES)

    return asyncio.run(whole())


@pytest.mark.slow
def test_nothing_of_one_tenant_is_shown_to_another(tmp_path: Path) -> None:
    report = run(tmp_path, LIBRARIES)
    assert report.findings == []
    questions = sum(len(one.questions) for one in LIBRARIES)
    assert report.requests["retrieve"] == report.requests["answer"] == 3 * questions
    assert report.log_lines >= report.requests.total()
    for one in LIBRARIES:
        assert report.recall(one.code) == 1.0, "each tenant finds its own"
        assert report.cited[one.code] >= 0.8 * len(one.questions)
        assert report.hits[one.code] >= 2, "a colleague is served from the cache of the own tenant"
        assert report.audit_events[one.code] > 2 * questions


@pytest.mark.slow
def test_what_a_tenant_is_shown_does_not_depend_on_who_else_is_there(tmp_path: Path) -> None:
    """Bodies are equal to the last digit of a score, sequence numbers of the audit included."""

    async def bodies(folder: Path, libraries: tuple[Library, ...]) -> dict[str, list[str]]:
        async with open_site(folder, libraries, Detector(LIBRARIES), model="hashing:256") as site:
            await ask_everything(site, LIBRARIES)
            assert site.report.findings == []
            return {name: tenant.bodies for name, tenant in site.tenants.items()}

    together = asyncio.run(bodies(tmp_path / "together", LIBRARIES))
    for one in LIBRARIES:
        alone = asyncio.run(bodies(tmp_path / one.code, (one,)))
        assert len(alone[one.tenant]) > 2 * sum(len(other.questions) for other in LIBRARIES)
        assert alone[one.tenant] == together[one.tenant]


@pytest.mark.slow
def test_a_leak_is_found(tmp_path: Path) -> None:
    """The German tenant holds an English passage and a Chinese one, and the log quotes a question."""
    leaking = replace(DE, passages=(*DE.passages[:-1], f"{DE.passages[-1]} {EN.passages[2]} {ZH.passages[2]}"))
    report = run(tmp_path, (EN, leaking, ZH), extra=EN.questions[4][0])
    text = "\n".join(report.findings)
    for piece in ("library-de, retrieve /v1/retrieve: en ", "library-de, answer /v1/answers: zh ", "log line "):
        assert piece in text
    assert "library-en, " not in text
    assert "library-zh, " not in text


def test_the_detector_tells_traces_from_own_and_said() -> None:
    detector = Detector(LIBRARIES)
    traces = {
        "a passage": EN.passages[0][10:40],
        "a passage in JSON": json.dumps({"text": EN.passages[1]}),
        "a Chinese passage": ZH.passages[4][3:13],
        "an id": f"no such document: {EN.document(3)}",
        "a title": f"nearest: {ZH.title(2)}",
        "a tenant": "belongs to library-zh",
    }
    for name, shown in traces.items():
        assert detector.traces(shown, own=DE.tenant), name
        assert not detector.traces(shown, own=DE.tenant, said=shown), name
    own = f"{DE.passages[0]} {DE.document(1)} {DE.title(2)} {DE.tenant}"
    assert not detector.traces(own, own=DE.tenant)
    assert detector.traces(own, own=EN.tenant)
    assert detector.any_text(DE.passages[0]), "a log holds nobody's text"
    assert detector.any_text(ZH.questions[1][0])
    assert detector.any_text(DE.document(1))
    assert not detector.any_text('{"tenant": "library-de", "route": "/v1/retrieve", "status": 200}')
