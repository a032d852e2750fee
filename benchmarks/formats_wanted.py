"""What is wanted of each of the forty files in the shared data's documents/files, decided by looking into the file.

`texts` are what a person who opens the file reads, on one line each as they stand there; `absent` must not stand in the
text that is taken for visible, and `kept` must in all of the text, hidden or not. `children` are the files within the
file, by suffix, or its end behind a `*`. `table` is a header that some table must have, `places` are among those named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

INDEXED = ("indexed",)
DOUBTFUL = ("indexed", "uncertain_encoding")
"""Nothing in the file says in which encoding it is: right when decoded, whether or not marked as a guess."""


@dataclass(frozen=True)
class Wanted:
    behaviour: str
    status: tuple[str, ...] = INDEXED
    texts: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    title: str | None = None
    table: str | None = None
    headings: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    children: dict[str, Wanted] = field(default_factory=dict)


_STEEL = ("SNB22-3", "Mechanical properties of grade SNB22-3", "Alloy steel bars for special application bolting")
_UDHR = (
    "Universal Declaration of Human Right - First article, all languages",
    "是人都生而自由，在尊严和权利上一律平等。",
    "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق.",
)
_ARCHIVED = "#member/审计压缩包文件检索测试/集团邮件审计系统2021年自动巡检需求文档_V4.0.doc"

WANTED: dict[str, Wanted] = {
    "docling__csv-inconsistent-header.csv": Wanted(
        "all rows, also the cells beyond the header, which is told",
        texts=("a | b | c | d",),
        table="1 | 2 | 3",
        warnings=("inconsistent_columns",),
    ),
    "docling__docx_external_image.docx": Wanted(
        "the text around the picture; the address of the picture is not fetched",
        texts=(
            "Test Document with External Image",
            "This paragraph has text before the image.",
            "This paragraph comes after the external image.",
        ),
        absent=("example.com",),
    ),
    "docling__html_heading_in_p.html": Wanted(
        "headings and table survive invalid nesting",
        texts=("1st paragraph", "5 | 6 | 7", "8 | 9 | 10", "2nd paragraph"),
        headings=("1", "21"),
        table="2 | 3 | 4",
        title="Headings inside paragraphs in HTML",
    ),
    "docling__powerpoint_bad_text.pptx": Wanted(
        "the text of the slide, runs joined, with its number",
        texts=("X-Library", "The fully customisable and copyright-free", "template collection exclusively"),
        places=("slide 1",),
    ),
    "docling__xlsx_06_edge_cases_.xlsx": Wanted(
        "three sheets by name; a header with a missing first cell; two tables on a sheet",
        texts=("What is the main objective?", "Attached left", "no code data is stored", "Overview 1", "Extra 2"),
        kinds=("table",),
        places=("sheet missing_header_head!", "sheet Attached_left!", "sheet Diagonal!"),
    ),
    "markitdown__SPARSE-2024-INV-1234_borderless_table.pdf": Wanted(
        "the rows of the tables without rules stay together, empty cells where they are, with page numbers",
        texts=(
            "INVENTORY RECONCILIATION REPORT",
            "Variance Analysis:",
            "SKU-9201 |  | 780 | 778 |  | OK",
            "SKU-4563 | D-22 |  | 156 |  | CRITICAL",
            "SKU-6678 | Software | $200.00 | $42,000.00 | 2024-10-25 | High Value",
        ),
        table="Product Code | Location | Expected | Actual | Variance | Status",
        places=("page 1", "page 2"),
    ),
    "markitdown__test_mskanji.csv": Wanted(
        "Shift_JIS that nothing declares: decoded",
        DOUBTFUL,
        texts=("佐藤太郎 | 30 | 東京", "三木英子 | 25 | 大阪", "髙橋淳 | 35 | 名古屋"),
        table="名前 | 年齢 | 住所",
    ),
    "pypdf__attachment.pdf": Wanted(
        "the page, and the attached PDF as a child",
        texts=("The Crazy Ones", "The round pegs in the square holes."),
        places=("page 1",),
        children={"#attachment-1/jpeg.pdf": Wanted("its text", texts=("A PDF with a JPEG image.",))},
    ),
    "pypdf__crazyones.pdf": Wanted(
        "the text of the page", texts=("The Crazy Ones", "The round pegs in the square holes."), places=("page 1",)
    ),
    "pypdf__issue-297.pdf": Wanted("read in spite of its wrong cross-reference table", texts=("test example",)),
    "pypdf__multilang.pdf": Wanted(
        "six scripts",
        texts=("Hello World", "مرحبا بالعالم", "Привет, мир", "你好世界", "สวัสดีชาวโลก", "こんにちは世界"),
    ),
    "pypdf__r6-empty-password.pdf": Wanted(
        "AES-256 with an empty password opens for everybody", texts=("pdf encryption test",)
    ),
    "pypdf__side-by-side-subfig.pdf": Wanted(
        "text and captions around two pictures",
        texts=("Your Chapter", "Lorem ipsum dolor sit amet", "South American coati", "Figure 1.1: Bears"),
        places=("page 1",),
    ),
    "tika__NullHeader.docx": Wanted(
        "read although the reference to its header leads nowhere",
        texts=("Hundreds injured in Yemen protest", "Collapsing economy", "President Ali Abdullah Saleh"),
    ),
    "tika__english.cp500.txt": Wanted(
        "EBCDIC that nothing declares: decoded",
        DOUBTFUL,
        texts=("IntelliStation POWER", "Warranties, licenses and maintenance"),
    ),
    "tika__gbk.zip": Wanted(
        "names in GBK decoded; its one member, a file of 0 bytes, is named as empty",
        (),
        children={_ARCHIVED: Wanted("0 bytes", ("empty",))},
    ),
    "tika__protect.xlsx": Wanted("needs a password; not a damaged zip", ("encrypted",)),
    "tika__testAltChunkHTML.docx": Wanted(
        "the imported HTML is the body",
        texts=("Simple paragraph with a emphasized word.", "Example of a table:", "ROW 1 | ROW 1", "ROW 2 | ROW 2"),
        table="Col 1 | Col 2",
    ),
    "tika__testEXCEL_dateFormats.xlsx": Wanted(
        "numbers that are shown as dates are dates", texts=("2018-09-20", "1996-08-10"), absent=("43363", "35287")
    ),
    "tika__testHTMLNoisyMetaEncoding_1.html": Wanted(
        "ISO-8859-6, found in spite of the noise around the declaration",
        DOUBTFUL,
        texts=("وأعرب الاتحاد الجزائري وقتها عن",),
        absent=("MsoNormal",),
    ),
    "tika__testHTML_script_in_body.html": Wanted(
        "text without the script", texts=("This is a test.",), absent=("cool script",)
    ),
    "tika__testMBOX_complex.mbox": Wanted(
        "the one message, as its reader sees it",
        (),
        children={
            "#message/021701d0c2b9$dadbf470$9092ea50$@example.com": Wanted(
                "subject, sender and HTML body; the other body is no visible text",
                title="xxxxxxx",
                texts=("Some Person", "Dear Mr.Person,", "My name is Another Person. body 2"),
                absent=("MsoNormal", "body 1"),
            )
        },
    ),
    "tika__testPDF_deeplyEmbeddedAttachments.pdf": Wanted(
        "twenty attachments, found down the name tree",
        texts=("a",),
        children={
            f"*/{name}": Wanted("its text", texts=("a",))
            for name in ("orig.pdf", *(f"orig({number}).pdf" for number in range(2, 21)))
        },
    ),
    "tika__testRFC822_multipart_attachments.eml": Wanted(
        "subject, the body that a reader sees, and both attachments as children",
        title="EML 1",
        texts=("EML 1", "Bugs.Bunny@acme.com", "This is the html body of the main msg."),
        children={
            "#attachment-1/Test TxtA.txt": Wanted("its text", texts=("This is Test TXTA File for parser",)),
            "#attachment-2/Test TxtB.txt": Wanted("its text", texts=("This is Test TXTB File for parser",)),
        },
    ),
    "tika__testWORD_truncated.docx": Wanted("cut off: no word processor opens it", ("corrupt",)),
    "tika__testZipEntryNameCharsetShiftSJIS.zip": Wanted(
        "names and contents in Shift_JIS decoded",
        (),
        children={
            "#member/文章1.txt": Wanted("decoded", DOUBTFUL, texts=("あいうえお", "かきくけこ")),
            "#member/文章2.txt": Wanted("decoded", DOUBTFUL, texts=("さしすせそ", "たちつてと")),
        },
    ),
    "unstructured__UDHR_first_article_all.txt": Wanted("UTF-8 in some 300 languages", texts=_UDHR),
    "unstructured__docx-hdrftr.docx": Wanted(
        "header and footer with their tables; what a merged cell covers is no visible text",
        texts=("Main document", "First header para", "Table cell1 | Table cell2", "para1"),
        absent=("I should not be included",),
        kinds=("header", "footer"),
    ),
    "unstructured__emoji.xlsx": Wanted("emoji, with sheet and cell", texts=("🤠😅",), places=("sheet ",)),
    "unstructured__empty.txt": Wanted("0 bytes", ("empty",)),
    "unstructured__example-steelJIS-datasheet-utf-16.html": Wanted(
        "UTF-16 whatever the page declares; tables in rows",
        texts=(*_STEEL, "Bars | 890 | 1000 | 12 | 40"),
        absent=("adsbygoogle", "querySelector", "createElement"),
        kinds=("table",),
    ),
    "unstructured__fake-email-utf-16-le.eml": Wanted(
        "a mail in UTF-16",
        title="Test Email",
        texts=("Matthew Robinson", "This is a test email to use for unit tests.", "Roses are red", "Violets are blue"),
    ),
    "unstructured__fake-html-cp1252.html": Wanted(
        "Windows-1252 that nothing declares: decoded",
        DOUBTFUL,
        texts=("Die schöne Frau hat einen Kaffee", "köstlich", "15,50 €", "¡Qué rico!"),
        headings=("My First Heading",),
    ),
    "unstructured__fake-incomplete-json.txt": Wanted(
        "the text as it stands: its name says text", texts=("johndoe@example.com", '"hobbies": ["reading", "running"')
    ),
    "unstructured__fake-text-all-whitespace.txt": Wanted("nothing but white space", ("empty",)),
    "unstructured__figure-overlay-text.pdf": Wanted(
        "the label, and what was filled in over it", texts=("Printed Name:", "Jane Doe")
    ),
    "unstructured__hebrew-text-base64-iso88598i.txt": Wanted(
        "base64 of Hebrew in ISO-8859-8: decoded; a guess, and text that nobody who opens the file sees",
        ("uncertain_encoding",),
        warnings=("hidden_text",),
        kept=("עדכון Tesla - נדרשת חתימה על הבקשה לרישום",),
    ),
    "unstructured__mime-word-encoded-subject.eml": Wanted(
        "the subject decoded",
        title="Simple email with ☸☿ Unicode subject",
        texts=("☸☿", "This is a simple email message with Unicode characters in the subject."),
    ),
    "unstructured__password.pdf": Wanted("needs a password", ("encrypted",)),
    "unstructured__stanley-cups-utf-16.csv": Wanted(
        "UTF-16; the title above the table is not its header",
        texts=("Stanley Cups", "Blues | STL | 1", "Flyers | PHI | 2", "Maple Leafs | TOR | 13"),
        table="Team | Location | Stanley Cups",
    ),
}
