"""Follow-up questions in Chinese: "那德国呢？" and sentences with 它, 这个, 其."""

from __future__ import annotations

import regex

_ELLIPSIS = regex.compile(
    r"^(?:那么|那|而|还有|以及)?[，,]?(?P<rest>[^呢？?]{1,20}?)呢[？?]?$|^(?:那么|那|还有|以及)(?P<bare>[^？?]{1,12})[？?]$"
)
_PRONOUN = regex.compile(
    r"它们的?|它的?|(?<!其)他们|她们|(?<![其吉])他|她|其(?=[\p{Han}])(?!他|实|中|它|余|次)|(?<=^|[，,])(?:这个|那个|这项|该)(?=[是有适需可应能怎如])"
)
_WHY = regex.compile(r"^(?:那|那么)?为什么呢?[？?]?$")
_PREDICATE = regex.compile(
    r"是否|是|有|在|可以|需要|应该|应|能|会|怎么|怎样|如何|为什么|什么|多少|几|吗|适用|包括|何时|谁|哪"
)
_POSSESSOR = regex.compile(r"^(?P<owner>[^的，,？?]{1,12})的")
_QUESTION_WORD = regex.compile(r"什么|多少|几|吗|怎|如何|为什么|何|谁|哪|是否")


def rewrite_chinese(question: str, previous: str) -> str | None:
    """`question` made to stand alone with the previous one; `None` where no rule applies."""
    if _WHY.match(question):
        return f"{previous.rstrip('？? ')}，为什么？"
    ellipsis = _ELLIPSIS.match(question)
    if ellipsis:
        rest = (ellipsis.group("rest") or ellipsis.group("bare")).strip()
        return None if not rest or _QUESTION_WORD.search(rest) else _exchanged(rest, previous)
    pronoun = _PRONOUN.search(question)
    topic = _topic(previous)
    if pronoun is None or topic is None or _QUESTION_WORD.search(topic):
        return None
    possessive = "的" if pronoun.group().endswith("的") else ""
    return f"{question[: pronoun.start()]}{topic}{possessive}{question[pronoun.end() :]}"


def _exchanged(rest: str, previous: str) -> str:
    """The previous question about `rest`: in place of its possessor ("中国的年假…"), of its subject, or beside it."""
    body = previous.rstrip("？? ")
    if regex.match(r"[在对从给为按]", rest):
        same = regex.search(rf"{rest[0]}[^，,？?的]{{1,8}}?(?=[，,]|的|工作)", body)
        return f"{body[: same.start()]}{rest}{body[same.end() :]}？" if same else f"{rest}，{body}？"
    owner = _POSSESSOR.match(body)
    if owner and not _QUESTION_WORD.search(owner.group("owner")):
        return f"{rest}{body[owner.end('owner') :]}？"
    topic = _topic(body)
    if topic and body.startswith(topic) and not _QUESTION_WORD.search(topic):
        return f"{rest}{body[len(topic) :]}？"
    return f"{rest}，{body}？"


def _topic(previous: str) -> str | None:
    """The beginning of the previous question up to its predicate."""
    body = previous.strip().rstrip("？? ")
    predicate = _PREDICATE.search(body)
    topic = (body[: predicate.start()] if predicate else body).strip("，, ").removesuffix("的")
    return topic if 0 < len(topic) <= 20 else None
