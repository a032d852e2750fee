"""Personal data in a question: what it says about one person, so that its answer is kept for the asker alone.

Numbers count by their shape, or by their check digits where the shape says little; statements by what people tell of
themselves and of those near to them, in English and Chinese. A question about a rule ("what is the salary of grade 7?")
says nothing about anybody. In doubt it is personal: that costs a shared hit, the other error shows one's affairs to
another. It finds what is said in plain words, and no more; it is no anonymiser.
"""

from __future__ import annotations

from typing import Final

import regex

E_MAIL: Final = "e-mail"
TELEPHONE: Final = "telephone"
ACCOUNT: Final = "account"
CARD: Final = "card"
NATIONAL: Final = "national id"
SELF: Final = "about oneself"

# Asked first, since most questions have neither.
_DIGIT = regex.compile(r"\d")
_FIRST_PERSON = regex.compile(r"\b(?:i|my|our)\b")

# Numbers with fewer digits are personal only as an account, behind a "+", or behind the name of a document.
_FEWEST: Final = 5
_DOCUMENTS: Final = (
    "passport", "id card", "identity card", "social security", "national insurance", "tax id", "driving licence",
    "driving license",
)  # fmt: skip

_E_MAIL = regex.compile(r"\w@[\w-]+\.\w")
_TELEPHONE = regex.compile(
    r"(?<![\w.])\+\d[\d\s().-]{6,20}\d"  # international
    r"|(?<![\w.])00[1-9]\d[\d\s().-]{5,20}\d"
    r"|(?<![\w.-])\(?0\d{1,5}\)?[ /-]\d{2,5}[ -]?\d{2,5}(?:[ -]?\d{1,4})?(?![\w.-])"  # national, with its zero
    r"|(?<![\w.-])\(\d{3}\) ?\d{3}-\d{4}(?!\d)|(?<![\w.-])\d{3}-\d{3}-\d{4}(?!\d)"  # North America
    r"|(?<!\d)1[3-9]\d[ -]?\d{4}[ -]?\d{4}(?!\d)"  # Chinese mobile
)
_ACCOUNT_LIKE = regex.compile(r"\b[a-z]{2}\d{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,4})?\b")
_GROUPED = regex.compile(r"[a-z]{2}\d{2}(?:[ -][a-z0-9]{4}){3,7}(?:[ -][a-z0-9]{1,4})?")
_CARD_LIKE = regex.compile(r"(?<![\d.,])\d(?:[ -]?\d){12,18}(?![\d.,]?\d)")
_CARD_GROUPED = regex.compile(r"(?<!\d)(?:\d{4}[ -]){3}\d{4}(?!\d)|(?<!\d)3[47]\d{2}[ -]\d{6}[ -]\d{5}(?!\d)")
_NATIONAL = regex.compile(
    r"\b\d{3}-\d{2}-\d{4}\b"  # United States
    r"|(?<!\d)\d{17}[\dx](?![\dx])"  # China
    r"|\b[a-ceghj-prtw-z][a-ceghj-nprtw-z] ?\d{2} ?\d{2} ?\d{2} ?[a-d]\b"  # United Kingdom
    r"|\b[12] ?\d{2} ?(?:0[1-9]|1[0-2]) ?\d{2} ?\d{3} ?\d{3} ?\d{2}\b"  # France
    r"|(?<!\d)(?<!\d[ -])\d{4} \d{4} \d{4}(?![ -]?\d)"  # India
    rf"|\b(?:{'|'.join(_DOCUMENTS)})"
    r"(?: card)?(?: (?:no|nr|number|#))?\.?(?: is|:)? ?(?=[a-z]{0,3}\d)[a-z0-9]{6,}"
    r"|(?:身份证|护照|社保|驾驶证)(?:号码?)?(?:是|为|[::])?\s?[a-z]?\d{6,}"
)
_SPANISH = regex.compile(r"\b([xyz]?\d{7,8})-?([a-z])\b")
_LETTERS = "trwagmyfpdxbnjzsqvhlcke"

_OWN = (
    r"(?:(?:full|first|last|maiden|home|private|personal|current|new|annual|monthly|gross|net|base|bank|e-?mail|phone|"
    r"mobile|employee|staff|account|insurance|health|medical|criminal|credit) )*"
    r"(?:names?|surname|birthday|birth ?date|date of birth|age|address(?:es)?|e-?mail|phone|mobile|number|password|"
    r"passcode|pin|salary|wages?|pay|income|bonus|debts?|passport|visa|ssn|id|iban|account|card|diagnos[ie]s|illness|"
    r"disease|condition|disability|depression|anxiety|cancer|pregnancy|medication|prescription|blood (?:type|pressure)|"
    r"weight|religion|faith|ethnicity|sexual orientation|union membership|conviction|record|divorce|performance "
    r"(?:review|rating)|appraisal|warning|dismissal|resignation|sick (?:leave|note)|therapist|psychiatrist|doctor)"
)
_NEAR = (
    r"(?:wife|husband|spouse|partner|girlfriend|boyfriend|son|daughter|child|children|kids?|baby|mother|father|mum|mom|"
    r"dad|parents?|brother|sister|boss|manager|supervisor|colleague|co-?worker|teammate)"
)
_STATES = (
    r"(?:pregnant|diagnosed|fired|dismissed|sacked|laid off|made redundant|arrested|convicted|sued|suspended|demoted|"
    r"harassed|bullied|assaulted|abused|discriminated|hospitali[sz]ed|disabled|ill|sick|injured|depressed|suicidal|"
    r"burn(?:ed|t) out|diabetic|epileptic|autistic|bipolar|alcoholic|addicted|hiv|bankrupt|in debt|divorced|divorcing|"
    r"getting divorced|separated|widowed|undocumented|transgender|trans|gay|lesbian|bisexual|muslim|jewish|christian|"
    r"hindu|buddhist|catholic|atheist|"
    r"on (?:sick leave|probation|parole|medication|antidepressants|a (?:final )?warning)|born|breastfeeding|infertile)"
)
_ILLNESS = (
    r"(?:cancer|diabetes|depression|anxiety|adhd|autism|hiv|aids|epilepsy|asthma|migraines?|a tumou?r|ms|"
    r"multiple sclerosis|arthritis|bipolar disorder|ptsd|burnout|long covid|covid|hepatitis|"
    r"a (?:heart|kidney|liver|lung|"
    r"mental|chronic|medical|psychiatric|skin)[a-z -]{0,20}(?:condition|disease|illness|disorder|problem)|"
    r"a disability|a miscarriage|an abortion|a stroke|a heart attack|surgery|an operation|chemotherapy|"
    r"a criminal record|a conviction)"
)
_SAID = regex.compile(
    rf"\b(?:my|our) {_OWN}(?: (?:number|no|address))?(?: (?:is|are|was|were|has|went|of)\b|'s\b|[:=]| ?\(?\d)"
    rf"|\b(?:my|our) {_NEAR} (?:is|are|was|were|has|have|had|died|left|earns?|suffers?|takes?|needs?|got)\b"
    rf"|\b(?:my|our) {_NEAR}'s {_OWN}\b"
    rf"|\bi(?:'m| am| was| have been|'ve been| got| feel| became| will be)(?: \w+){{0,2}} {_STATES}\b"
    rf"|\bi(?:'ve| have| had|'m having| am having| suffer(?:ed)? from| live with|'ve got| have got| was diagnosed with)"
    rf"(?: \w+){{0,2}} {_ILLNESS}\b"
    r"|\bi(?:'m| am| was| turned) \d{1,2}(?: years? old\b|\b(?=[.,;?!]|$))"
    r"|(?<!\b(?:can|could|do|did|may|might|must|should|will|would) )\bi (?:"
    r"(?:earn|make|get paid|owe|was paid|am paid)(?: \w+){0,2} [$€£¥]?\s?\d|(?:live|reside) (?:at|in|on) )"
    r"|\bi(?:'ve had| have| had| got| received| was given)(?: \w+){0,2} (?:warning|sick note|diagnosis)\b"
    r"|\bi take (?:anti|medication|pills|insulin|lithium|methadone)"
    r"|\bi(?:'m| am) (?:married to|divorcing|seeing a (?:therapist|psychiatrist)|in therapy|in rehab)\b"
    r"|\bi (?:tried to kill|hurt|cut) myself\b"
    r"|\bi (?:weigh|voted for|belong to the|am a member of the|joined the union)\b"
)
_NAMED = regex.compile(r"\bI(?:'m| am) (?:(?:Mr|Mrs|Ms|Dr)\.? )?\p{Lu}\p{Ll}+(?: \p{Lu}\p{Ll}+)+|\bI am called \p{Lu}")
_SAID_ZH = regex.compile(
    r"我(?:叫|姓|名叫|住在|今年\d|\d{1,3}岁|出生于|怀孕|怀了|离婚|离异|丧偶|破产|失业了|被[^,,。??]{0,6}(?:解雇|辞退|开除|裁员|降职|逮捕|起诉|骚扰|歧视|处分|诊断)|"
    r"确诊|患有|患了|得了|查出|做过?手术|流产|在吃药|服用|有(?:抑郁|焦虑|糖尿病|高血压|癌|残疾|心脏病|哮喘|癫痫|前科|案底|乙肝|艾滋)|"
    r"是(?:残疾人|孕妇|穆斯林|基督徒|佛教徒|同性恋|党员|单亲|艾滋|乙肝)|欠了?\d|月薪|年薪|工资是?\d|每月(?:挣|赚|拿))"
    r"|我(?:的|家)?(?:姓名|名字|生日|出生日期|年龄|住址|地址|邮箱|电话|手机|手机号|密码|身份证|护照|工资|薪水|薪资|年薪|月薪|收入|奖金|"
    r"银行卡|银行账号|账号|账户|卡号|社保号|病历|病情|诊断|血型|体重|宗教|绩效|考核|处分|工号)(?:号码?|结果|等级)?(?:是|为|[::]|有\d|\d)"
    r"|我(?:的)?(?:妻子|老婆|丈夫|老公|爱人|儿子|女儿|孩子|母亲|父亲|妈妈|爸爸|妈|爸|哥哥|姐姐|弟弟|妹妹|上司|经理|领导|同事)"
    r"(?:是|有|得|患|怀孕|去世|住院|生病|确诊|离|被|病|刚|最近|已经)"
)


def kind(question: str) -> str | None:
    """Which kind of personal data `question` carries (a short code, never a part of it), None for none."""
    plain = question.replace("\u2019", "'")
    lower = plain.lower()
    if "@" in lower and _E_MAIL.search(lower):
        return E_MAIL
    if _DIGIT.search(lower) and (found := _number(lower)):
        return found
    if _FIRST_PERSON.search(lower) and (_SAID.search(lower) or _NAMED.search(plain)):
        return SELF
    return SELF if "我" in lower and _SAID_ZH.search(lower) else None


def _number(lower: str) -> str | None:
    if any(_GROUPED.fullmatch(found) or _iban(found) for found in _ACCOUNT_LIKE.findall(lower)):
        return ACCOUNT
    short = len(_DIGIT.findall(lower)) < _FEWEST
    if short and "+" not in lower and not any(name in lower for name in _DOCUMENTS):
        return None
    # Before cards: a Chinese number of 18 digits passes for a card once in ten.
    if _NATIONAL.search(lower) or any(_dni(*found) for found in _SPANISH.findall(lower)):
        return NATIONAL
    if _CARD_GROUPED.search(lower) or any(_luhn(found) for found in _CARD_LIKE.findall(lower)):
        return CARD
    return TELEPHONE if _TELEPHONE.search(lower) else None


def _iban(text: str) -> bool:
    """Check digits modulo 97 (ISO 13616)."""
    plain = "".join(character for character in text if character.isalnum())
    if not 15 <= len(plain) <= 34 or not plain.isascii():
        return False
    return int("".join(str(int(character, 36)) for character in plain[4:] + plain[:4])) % 97 == 1


def _luhn(text: str) -> bool:
    """The check digit of payment cards (ISO/IEC 7812), for the issuers that there are."""
    digits = [int(character) for character in text if character.isdecimal()]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6):
        return False
    doubled = [(digit, 2 * digit - 9 * (digit > 4))[place % 2] for place, digit in enumerate(reversed(digits))]
    return sum(doubled) % 10 == 0


def _dni(number: str, letter: str) -> bool:
    """The check letter of Spanish identity numbers; X, Y and Z stand for 0, 1 and 2."""
    return _LETTERS[int(number.translate(str.maketrans("xyz", "012"))) % 23] == letter
