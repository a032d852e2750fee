"""What well-kept libraries for numbers, dates, units and identifiers cost and catch beside the guards' own slots.

    python -m benchmarks.guard_libraries [--libraries DIR] [--data DIR]

DIR of `--libraries` is a folder of installed packages (`pip install --target DIR phonenumbers dateparser ...`): none of
them is a dependency of the product. A library that is not there is left out and named. For each, on our own pairs of
its kind: how many of the equal ones have one value, and how many of the different ones two; how long a question takes
it, its import takes, and how much memory it holds. With `--data`: in how many of the traps and of the equal pairs of
`answer_equality_dev.jsonl` its values differ. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

Values = frozenset[str]
Reader = Callable[[str], Values]

# Kind -> pairs: first, second, whether both say the same.
PAIRS: dict[str, list[tuple[str, str, bool]]] = {
    "phone": [
        ("Can I call +44 20 7946 0018 at night?", "Can I call 0044 20 7946 0018 at night?", True),
        ("Can I call +44 (0)20 7946 0018 at night?", "Can I call +442079460018 at night?", True),
        ("Is +1 212 555 0199 open?", "Is +1 (212) 555-0199 open?", True),
        ("Can I call +44 20 7946 0018 at night?", "Can I call +44 20 7946 0019 at night?", False),
        ("Is 020 7946 0018 open?", "Is 020 7946 0081 open?", False),
        ("Is (212) 555-0199 open?", "Is (212) 555-0198 open?", False),
    ],
    "date": [
        ("Is it due on 3 May 2024?", "Is it due on 2024-05-03?", True),
        ("Is it due on May 3rd, 2024?", "Is it due on the 3rd of May 2024?", True),
        ("Is it due on 25/12/2025?", "Is it due on December 25, 2025?", True),
        ("Is the call at half past seven pm?", "Is the call at 19:30?", True),
        ("Is it due on 3 May 2024?", "Is it due on 4 May 2024?", False),
        ("Is it due on 3/4/2025?", "Is it due on 3 April 2025?", False),
        ("Is it due on 3/4/2025?", "Is it due on 4 March 2025?", False),
        ("Is it due next week?", "Is it due last week?", False),
        ("Is the office open at 7am?", "Is the office open at 7pm?", False),
        ("Is the office open on Saturday?", "Is the office open on Sunday?", False),
    ],
    "quantity": [
        ("Is a dose of 1,000 mg safe?", "Is a dose of 1 g safe?", True),
        ("Can I return it after 14 days?", "Can I return it after two weeks?", True),
        ("Is 2,700 kWh a lot?", "Is 2.7 MWh a lot?", True),
        ("Is 6 square metres enough?", "Is 6 m² enough?", True),
        ("Is the rate above 20%?", "Is the rate above twenty percent?", True),
        ("Is a dose of 50 mg safe?", "Is a dose of 50 mcg safe?", False),
        ("Is it free for 5 km?", "Is it free for 5 miles?", False),
        ("Is a link of 100 Mb fast?", "Is a link of 100 MB fast?", False),
        ("Is the notice 3 months?", "Is the notice 3 weeks?", False),
    ],
    "amount": [
        ("Is a claim of 1.200,50 EUR paid?", "Is a claim of €1,200.50 paid?", True),
        ("Is a claim of 1200 EUR paid?", "Is a claim of 1,200 euros paid?", True),
        ("Is a claim of $1.5k paid?", "Is a claim of 1500 dollars paid?", True),
        ("Is a claim of two million euros paid?", "Is a claim of €2m paid?", True),
        ("Is a claim of 1200 EUR paid?", "Is a claim of 1200 USD paid?", False),
        ("Is a claim of 1.200 EUR paid?", "Is a claim of 1200 EUR paid?", False),
        ("Is a fee of 50 cents due?", "Is a fee of 50 dollars due?", False),
    ],
    "number": [
        ("Is it for twenty-five users?", "Is it for 25 users?", True),
        ("Is it for two hundred and fifty users?", "Is it for 250 users?", True),
        ("Is it for 1,200 users?", "Is it for twelve hundred users?", True),
        ("Is it for 15 users?", "Is it for 50 users?", False),
        ("Is it for Python 3.1 users?", "Is it for Python 3.10 users?", False),
    ],
    "number (zh)": [
        ("转账一万二千元要多久?", "转账12000元要多久?", True),
        ("转账两百元要多久?", "转账200元要多久?", True),
        ("转账三百五十元要多久?", "转账350元要多久?", True),
        ("休假五天要审批吗?", "休假5天要审批吗?", True),
        ("休假五天要审批吗?", "休假十五天要审批吗?", False),
        ("转账一万二千元要多久?", "转账一万二百元要多久?", False),
    ],
    "account": [
        ("Is DE89 3704 0044 0532 0130 00 valid?", "Is DE89370400440532013000 valid?", True),
        ("Is 4111 1111 1111 1111 valid?", "Is 4111-1111-1111-1111 valid?", True),
        ("Is DE89 3704 0044 0532 0130 00 valid?", "Is DE89 3704 0044 0532 0130 01 valid?", False),
        ("Is 4111 1111 1111 1111 valid?", "Is 4111 1111 1111 1112 valid?", False),
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Library:
    """`modules` are what its import costs; `reader` builds a function from a question to normalised values."""

    name: str
    licence: str
    kinds: tuple[str, ...]
    modules: tuple[str, ...]
    reader: Callable[[], Reader]


def _ours() -> Reader:
    from cache.guards import read, slots
    from cache.guards.words import Language

    def values(question: str) -> Values:
        text = read(question)
        language = text.language if text.language is not Language.UNKNOWN else Language.ENGLISH
        cased = slots.CASED.findall(text.source)
        found = slots.extract(text, language)
        return frozenset(
            [*(f"{kind} {value}" for kind, known in found.items() if kind != "name" for value in known), *cased]
        )

    return values


def _phonenumbers() -> Reader:
    library = import_module("phonenumbers")
    form = library.PhoneNumberFormat.E164

    def values(question: str) -> Values:
        matches = library.PhoneNumberMatcher(question, "GB")
        return frozenset(library.format_number(match.number, form) for match in matches)

    return values


def _dateparser() -> Reader:
    search = import_module("dateparser.search").search_dates
    settings = {"RETURN_AS_TIMEZONE_AWARE": False}

    def values(question: str) -> Values:
        return frozenset(found.isoformat() for _, found in search(question, languages=["en"], settings=settings) or [])

    return values


def _quantulum() -> Reader:
    # Its classifier of ambiguous units is a pickle of an old scikit-learn; without it, units are told by rules.
    classifier: Any = import_module("quantulum3.classifier")
    classifier.USE_CLF = False
    parse = import_module("quantulum3.parser").parse

    def values(question: str) -> Values:
        return frozenset(f"{found.unit.name} {found.value:.9g}" for found in parse(question))

    return values


def _pint() -> Reader:
    registry = import_module("pint").UnitRegistry()

    def values(question: str) -> Values:
        found = set()
        for number, unit in re.findall(r"(\d[\d,.]*)\s?([A-Za-z%µ²]+)", question):
            try:
                quantity = registry.Quantity(float(number.replace(",", "")), unit).to_base_units()
            except Exception:  # noqa: BLE001 - it raises errors of many kinds for what is no unit
                continue
            found.add(f"{quantity.units} {quantity.magnitude:.9g}")
        return frozenset(found)

    return values


def _price_parser() -> Reader:
    price = import_module("price_parser").Price

    def values(question: str) -> Values:
        found = price.fromstring(question)
        return frozenset() if found.amount is None else frozenset({f"{found.currency} {found.amount.normalize()}"})

    return values


def _babel() -> Reader:
    library = import_module("babel.numbers")

    def values(question: str) -> Values:
        found = set()
        for written in re.findall(r"\d[\d.,]*\d|\d", question):
            for locale in ("en", "de"):
                try:
                    found.add(str(library.parse_decimal(written, locale=locale, strict=True).normalize()))
                    break
                except library.NumberFormatError:
                    continue
        return frozenset(found)

    return values


def _word2number() -> Reader:
    convert = import_module("word2number.w2n").word_to_num

    def values(question: str) -> Values:
        try:
            return frozenset({str(convert(question.rstrip("?")))})
        except (ValueError, IndexError):
            return frozenset()

    return values


def _text2num() -> Reader:
    convert = import_module("text_to_num").alpha2digit

    def values(question: str) -> Values:
        return frozenset(re.findall(r"\d+(?:\.\d+)?", convert(question, "en").replace(",", "")))

    return values


def _cn2an() -> Reader:
    convert = import_module("cn2an").transform

    def values(question: str) -> Values:
        return frozenset(re.findall(r"\d+(?:\.\d+)?", convert(question, "cn2an")))

    return values


def _recognizers() -> Reader:
    number = import_module("recognizers_number")
    units = import_module("recognizers_number_with_unit")
    dates = import_module("recognizers_date_time")

    def values(question: str) -> Values:
        found: set[str] = set()
        for recognise in (
            number.recognize_number, number.recognize_percentage, units.recognize_dimension, units.recognize_currency,
            dates.recognize_datetime,
        ):  # fmt: skip
            found |= {
                json.dumps(result.resolution, sort_keys=True, default=str) for result in recognise(question, "en-us")
            }
        return frozenset(found)

    return values


def _stdnum() -> Reader:
    iban, luhn = import_module("stdnum.iban"), import_module("stdnum.luhn")

    def values(question: str) -> Values:
        found = {
            iban.compact(text)
            for text in re.findall(r"[A-Z]{2}\d{2}[\dA-Z ]{11,30}\b", question)
            if iban.is_valid(text)
        }
        cards = (re.sub(r"\D", "", text) for text in re.findall(r"\d{4}(?:[ -]?\d{4}){3}", question))
        return frozenset(found | {card for card in cards if luhn.is_valid(card)})

    return values


LIBRARIES = (
    Library("ours", "Apache-2.0", tuple(PAIRS), ("cache.guards",), _ours),
    Library("phonenumbers", "Apache-2.0", ("phone",), ("phonenumbers",), _phonenumbers),
    Library("dateparser", "BSD-3-Clause", ("date",), ("dateparser.search",), _dateparser),
    Library("quantulum3", "MIT", ("quantity", "amount"), ("quantulum3.parser",), _quantulum),
    Library("pint", "BSD-3-Clause", ("quantity",), ("pint",), _pint),
    Library("price-parser", "BSD-3-Clause", ("amount",), ("price_parser",), _price_parser),
    Library("babel", "BSD-3-Clause", ("amount",), ("babel.numbers",), _babel),
    Library("word2number", "MIT", ("number",), ("word2number.w2n",), _word2number),
    Library("text2num", "MIT", ("number",), ("text_to_num",), _text2num),
    Library("cn2an", "MIT", ("number (zh)",), ("cn2an",), _cn2an),
    Library(
        "recognizers-text", "MIT", ("date", "quantity", "amount", "number"),
        ("recognizers_number", "recognizers_number_with_unit", "recognizers_date_time"), _recognizers,
    ),
    Library("python-stdnum", "LGPL-2.1+", ("account",), ("stdnum.iban", "stdnum.luhn"), _stdnum),
)  # fmt: skip


def measure(library: Library, data: Path | None) -> dict[str, Any]:
    """Import, memory, catches and time of one library in this process."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    for module in library.modules:
        import_module(module)
    imported = time.perf_counter() - started
    read = library.reader()
    equal, different = [0, 0], [0, 0]
    spent, questions = 0.0, 0
    for kind in library.kinds:
        for one, two, same in PAIRS[kind]:
            read(one)  # what is loaded at first use is not what a question costs
            began = time.process_time()
            first, second = read(one), read(two)
            spent, questions = spent + time.process_time() - began, questions + 2
            tally = equal if same else different
            tally[1] += 1
            tally[0] += bool(first) and first == second if same else first != second
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    row: dict[str, Any] = {
        "library": library.name, "licence": library.licence, "kinds": ", ".join(library.kinds),
        "equal": f"{equal[0]}/{equal[1]}", "different": f"{different[0]}/{different[1]}",
        "microseconds": round(spent / questions * 1e6), "import_ms": round(imported * 1e3),
        "memory_mb": round(memory / 1024, 1),
    }  # fmt: skip
    if data:
        traps, alike = [0, 0], [0, 0]
        for line in (data / "answer_equality_dev.jsonl").read_text().splitlines():
            pair = json.loads(line)
            if pair["same_answer"] or pair["category"] == "number_date":
                tally = alike if pair["same_answer"] else traps
                tally[1] += 1
                tally[0] += read(pair["a"]) != read(pair["b"])
        row |= {"traps_seen": f"{traps[0]}/{traps[1]}", "same_refused": f"{alike[0]}/{alike[1]}"}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.libraries:
        sys.path.append(str(arguments.libraries))
    if arguments.one:
        print(json.dumps(measure(next(found for found in LIBRARIES if found.name == arguments.one), arguments.data)))
        return
    rows = []
    for library in LIBRARIES:
        command = [sys.executable, "-m", "benchmarks.guard_libraries", *sys.argv[1:], "--one", library.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            print(f"{library.name:16} left out: {last[:100]}")
            continue
        row = json.loads(done.stdout.strip().splitlines()[-1])
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    print(json.dumps({"libraries": rows}))


if __name__ == "__main__":
    main()
