"""Requests to `POST /v1/chat/completions`: OpenAI's body as a `Question`, by an allowlist of fields.

Whatever would change the prompt's instructions, the permissions, or what an engine shares between requests is not a
field here and is refused by name. Values that mean "as if absent" (null, `n` of 1, a `temperature` of 0) are accepted,
since clients send them. Object and fields: https://platform.openai.com/docs/api-reference/chat/create.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from generation.prompt import Turn
from retrieval.question import Question
from service.bodies import MAX_QUERY, MAX_TURN, Name
from tenancy.errors import Forbidden, InvalidInput, StrongroomError, UnknownParameter
from tenancy.identity import Principal
from tenancy.names import nfc_name

MAX_EARLIER: Final = 200
"""Messages before the question: programs send their whole conversation; the path cuts what does not fit the model."""

ENGINE_FIELDS: Final = frozenset(
    {
        "bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt", "chat_template", "chat_template_kwargs",
        "continue_final_message", "custom_logit_processor", "custom_params", "data_parallel_rank", "extra_args",
        "extra_key", "guided_grammar", "guided_json", "guided_regex", "image_data", "input_embeds", "input_ids",
        "kv_transfer_params", "lora_id", "lora_path", "priority", "prompt_logprobs", "prompt_token_ids", "request_id",
        "return_hidden_states", "return_meta_info", "rid", "routed_dp_rank", "salt", "sampling_params", "session_id",
        "session_params",
    }
)  # fmt: skip
"""What engines take from a body and share memory, queues or prompts by. Not even null is accepted."""

_NO_IMAGES: Final = "only text is read; images, audio and files are not"
_WHY: Final = {
    "messages": "the conversation is empty",
    "model": "a model of GET /v1/models has to be named",
    "role": "only system, developer, user and assistant messages are read; there are no tools",
    "content": "only text is read: a string, or parts of type text",
    "temperature": "answers are made at the deployment's temperature; only 0 is accepted",
    "top_p": "answers are made without sampling; only 1 is accepted",
    "n": "there is one answer to a question; only 1 is accepted",
    "type": _NO_IMAGES,
    "image_url": _NO_IMAGES,
    "input_audio": _NO_IMAGES,
    "file": _NO_IMAGES,
    "name": "a message has no author but its role; who asks is the credential's user",
    "seed": "answers are not drawn by chance",
    "stop": "an answer ends where its text ends; bound it with max_tokens",
    "tools": "there are no tools",
    "logprobs": "probabilities of tokens are not shown",
    "store": "completions are not stored for later",
    "response_format": "the answer is text",
    "prompt_cache_key": "what may be shared is decided by permissions alone",
}
_UNKNOWN: Final = "object contains unknown field"
_ONLY_NULL: Final = "expected `null`"
_OTHER_VALUE: Final = re.compile(r"invalid (?:enum )?value|expected `(?:float` [<>]=|array` of length <=)")
_LEAF: Final = re.compile(r"(?:^|\.)([a-z_]+)(?:\[[\d.]*\])*$")


class EngineParameter(UnknownParameter):
    """A field of inference engines that a request may never set."""

    code = "engine-parameter"


class Unsupported(InvalidInput):
    """A field of OpenAI's API, or a value of it, that means nothing here."""

    code = "unsupported-parameter"


class UnsupportedValue(Unsupported):
    """A value of a field that is supported with another."""

    code = "unsupported-value"


class ConversationTooLong(InvalidInput):
    """More or longer messages than one request may have."""

    code = "context-length-exceeded"


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """A part of a message."""

    text: str


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One message. `system` and `developer` messages are data like the others: the template's instructions stand."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    annotations: Annotated[list[Any], Meta(max_length=0)] | None = None
    audio: None = None
    function_call: None = None
    name: None = None
    refusal: None = None
    tool_call_id: None = None
    tool_calls: None = None


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """With `include_usage` a last chunk says how many tokens were used."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """The only form of an answer."""


class ChatMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The caller's own ids: `feature` for metering, `root` of a conversation or job, for the audit."""

    feature: Name | None = None
    root: Name | None = None


Tokens = Annotated[int, Meta(ge=1, le=10_000_000, description="Tokens of the answer, at most.")]
Zero = Annotated[float, Meta(ge=0, le=0, description="0, or not at all.")]
One = Annotated[float, Meta(ge=1, le=1, description="1, or not at all.")]


class ChatRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A conversation whose last message is the question. Fields of type null are accepted as null alone. `user` never
    selects: it is either the credential's own user or refused with 403.
    """

    model: Annotated[Name, Meta(description="A model of GET /v1/models.")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1, description="Oldest first; the last is the question.")]
    stream: Annotated[bool, Meta(description="Answer as server-sent events.")] | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Zero | None = None
    top_p: One | None = None
    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    n: Literal[1] | None = None
    logprobs: Annotated[bool, Meta(description="false, or not at all.")] | None = None
    store: Annotated[bool, Meta(description="false, or not at all.")] | None = None
    modalities: list[Literal["text"]] | None = None
    response_format: TextFormat | None = None
    service_tier: Literal["auto", "default"] | None = None
    metadata: ChatMetadata | None = None
    user: Annotated[str, Meta(description="Not needed; another user than the credential's is refused.")] | None = None
    audio: None = None
    function_call: None = None
    functions: None = None
    logit_bias: None = None
    moderation: None = None
    parallel_tool_calls: None = None
    prediction: None = None
    prompt_cache_key: None = None
    prompt_cache_options: None = None
    prompt_cache_retention: None = None
    reasoning_effort: None = None
    safety_identifier: None = None
    seed: None = None
    stop: None = None
    tool_choice: None = None
    tools: None = None
    top_logprobs: None = None
    verbosity: None = None
    web_search_options: None = None


_OTHER_PARTS: Final = frozenset({"file", "image_url", "input_audio"})
_OPENAI_FIELDS: Final = (
    frozenset(
        name
        for struct in (ChatRequest, ChatMessage, StreamOptions, TextPart, TextFormat, ChatMetadata)
        for name in struct.__struct_fields__
    )
    | _OTHER_PARTS
    | {"type"}
)


def question_of(data: ChatRequest, principal: Principal, request_id: str) -> Question:
    """The question as the path takes it: the last message asks, those before it are the history.

    Raises `InvalidInput` or one of its kind with the field's name, and `Forbidden` for another user.
    """
    if data.user is not None and data.user != principal.user:
        raise Forbidden(
            "the request names another user than the credential",
            item="user",
            remedy="leave it out; permissions are the credential's",
        )
    _refuse_values(data)
    texts = [_text(message, f"messages[{index}]") for index, message in enumerate(data.messages)]
    last = len(texts) - 1
    if data.messages[last].role != "user":
        raise InvalidInput("the last message has to be the user's question", item=f"messages[{last}].role")
    if not texts[last].strip():
        raise InvalidInput("the question is empty", item=f"messages[{last}].content")
    if last > MAX_EARLIER:
        raise ConversationTooLong(f"more than {MAX_EARLIER} messages before the question", item="messages")
    for index, text in enumerate(texts):
        limit = MAX_QUERY if index == last else MAX_TURN
        if len(text) > limit:
            raise ConversationTooLong(f"longer than {limit} characters", item=f"messages[{index}].content")
    metadata = data.metadata or ChatMetadata()
    return Question(
        query=texts[last],
        request_id=request_id,
        model=data.model,
        max_tokens=data.max_completion_tokens or data.max_tokens,
        history=tuple(_turn(message, text) for message, text in zip(data.messages[:last], texts[:last], strict=True)),
        feature=None if metadata.feature is None else nfc_name(metadata.feature, "metadata.feature"),
        root=None if metadata.root is None else nfc_name(metadata.root, "metadata.root"),
    )


def explained(error: InvalidInput) -> InvalidInput:
    """What the decoder refused, told as what it means here."""
    item = error.item or "body"
    leaf = _leaf(item)
    if leaf in ENGINE_FIELDS:
        return EngineParameter("the server alone decides this; a request cannot set it", item=item[:100])
    why = _WHY.get("response_format" if item.startswith("response_format") else leaf)
    if error.reason.startswith(_ONLY_NULL) or leaf in _OTHER_PARTS:
        return Unsupported(why or "this is not supported here", item=item[:100], remedy="leave it out")
    if _OTHER_VALUE.match(error.reason):
        return UnsupportedValue(why or "this value is not supported here", item=item[:100], remedy="leave it out")
    if error.reason.startswith(_UNKNOWN):
        return UnknownParameter("there is no such field", item=item[:100], remedy="leave it out")
    return type(error)(error.reason if why is None else f"{why} ({error.reason})", item=item[:100], remedy=error.remedy)


def recorded_field(error: StrongroomError) -> str:
    """The field as the audit may name it: one that somebody made up could hold anything."""
    leaf = _leaf(error.item or "body")
    return leaf if leaf in ENGINE_FIELDS or leaf in _OPENAI_FIELDS else "other"


def _refuse_values(data: ChatRequest) -> None:
    for name in ("logprobs", "store"):
        if getattr(data, name):
            raise UnsupportedValue(_WHY[name], item=name, remedy="leave it out")
    if data.stream_options is not None:
        if not data.stream:
            raise InvalidInput("only a stream has options", item="stream_options", remedy="set stream, or leave it out")
        if data.stream_options.include_obfuscation:
            raise UnsupportedValue(
                "chunks are not padded", item="stream_options.include_obfuscation", remedy="leave it out"
            )
    if None not in (data.max_tokens, data.max_completion_tokens) and data.max_tokens != data.max_completion_tokens:
        raise InvalidInput("two limits that differ", item="max_tokens", remedy="send max_completion_tokens alone")


def _text(message: ChatMessage, where: str) -> str:
    """The text of a message; an assistant's may be empty, as of an answer that was broken off."""
    if message.content is None:
        if message.role != "assistant":
            raise InvalidInput("a message without text", item=f"{where}.content")
        return ""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text for part in message.content)


def _turn(message: ChatMessage, text: str) -> Turn:
    if message.role in ("system", "developer"):
        return Turn("client", text)
    return Turn("assistant" if message.role == "assistant" else "user", text)


def _leaf(item: str) -> str:
    """The name of the field itself, without where it stands: `content` of `messages[0].content[1]`."""
    found = _LEAF.search(item.lower())
    return "" if found is None else found.group(1)
