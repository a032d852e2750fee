"""Numbers, currencies and units in canonical form: data for `slots`."""

from __future__ import annotations

from typing import Final

NUMBER_WORDS: Final[dict[str, int]] = {
    word: value
    for value, word in enumerate(
        (
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        )
    )
} | {
    word: 10 * value
    for value, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), 2)
}
MULTIPLIERS: Final[dict[str, int]] = {
    "hundred": 100,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
}
SUFFIXES: Final[dict[str, int]] = {"k": 1_000, "mio": 1_000_000, "mn": 1_000_000, "bn": 1_000_000_000}
ZH_DIGITS: Final[dict[str, int]] = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {
    "两": 2,
    "兩": 2,
    "〇": 0,
}
ZH_POWERS: Final[dict[str, int]] = {
    "十": 10,
    "百": 100,
    "千": 1_000,
    "万": 10_000,
    "萬": 10_000,
    "亿": 10**8,
    "億": 10**8,
}

CURRENCIES: Final[dict[str, str]] = {
    name: code
    for code, names in {
        "USD": "$ us$ usd dollar dollars 美元",
        "EUR": "€ eur euro euros 欧元 歐元",
        "GBP": "£ gbp pound pounds quid 英镑 英鎊",
        "CNY": "cny rmb yuan renminbi 人民币 人民幣 元 块",
        "JPY": "¥ jpy yen 日元 日圓",
        "INR": "₹ inr rupee rupees",
        "CHF": "chf franc francs",
        "KRW": "₩ krw won",
        "CAD": "cad c$",
        "AUD": "aud a$",
        "SEK": "sek",
        "PLN": "pln zloty",
    }.items()
    for name in names.split()
}

# unit -> (dimension, factor to the dimension's base unit)
UNITS: Final[dict[str, tuple[str, float]]] = {
    name: (dimension, factor)
    for dimension, factor, names in (
        ("mass", 1e-9, "mcg µg ug microgram micrograms"),
        ("mass", 1e-6, "mg milligram milligrams 毫克"),
        ("mass", 1e-3, "g gram grams gramme grammes 克"),
        ("mass", 1.0, "kg kgs kilo kilos kilogram kilograms 公斤 千克"),
        ("mass", 1e3, "t tonne tonnes ton tons 吨 噸"),
        ("mass", 0.45359237, "lb lbs"),
        ("mass", 0.028349523, "oz ounce ounces"),
        ("length", 1e-3, "mm millimetre millimetres millimeter millimeters 毫米"),
        ("length", 1e-2, "cm centimetre centimetres centimeter centimeters 厘米"),
        ("length", 1.0, "m metre metres meter meters 米"),
        ("length", 1e3, "km kilometre kilometres kilometer kilometers 公里 千米"),
        ("length", 1609.344, "mile miles mi 英里"),
        ("length", 0.3048, "ft foot feet"),
        ("length", 0.0254, "inch inches"),
        ("volume", 1e-3, "ml millilitre millilitres milliliter milliliters 毫升"),
        ("volume", 1.0, "l litre litres liter liters 升"),
        ("time", 1e-3, "ms millisecond milliseconds 毫秒"),
        ("time", 1.0, "s sec secs second seconds 秒"),
        ("time", 60.0, "min mins minute minutes 分钟 分鐘"),
        ("time", 3600.0, "h hr hrs hour hours 小时 小時"),
        ("time", 86400.0, "day days 天 日"),
        ("time", 604800.0, "week weeks wk wks 周 星期"),
        ("months", 1.0, "month months 个月 個月"),
        ("months", 12.0, "year years yr yrs 年"),
        ("data", 1e3, "kb"),
        ("data", 1e6, "mb megabyte megabytes"),
        ("data", 1e9, "gb gigabyte gigabytes"),
        ("data", 1e12, "tb terabyte terabytes"),
        ("energy", 1.0, "wh"),
        ("energy", 1e3, "kwh"),
        ("energy", 1e6, "mwh"),
        ("power", 1.0, "w watt watts"),
        ("power", 1e3, "kw kilowatt kilowatts"),
        ("power", 1e6, "mw"),
        ("voltage", 1.0, "v volt volts"),
        ("temperature-c", 1.0, "°c celsius"),
        ("temperature-f", 1.0, "°f fahrenheit"),
        ("ratio", 0.01, "% percent pct"),
    )
    for name in names.split()
}

MONTHS: Final[dict[str, int]] = {
    name: number
    for number, names in enumerate(
        (
            "january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
            "september sep sept", "october oct", "november nov", "december dec",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
WEEKDAYS: Final[dict[str, int]] = {
    name: number
    for number, names in enumerate(
        (
            "monday mon mondays", "tuesday tue tues tuesdays", "wednesday wed wednesdays",
            "thursday thu thur thurs thursdays", "friday fri fridays", "saturday sat saturdays", "sunday sun sundays",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
