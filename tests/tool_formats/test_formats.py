"""Every tool format: what is parsed, what is rendered, and hostile input, in linear time."""

import gc
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl_jax import tool_formats
from agentrl_jax.errors import UserError
from agentrl_jax.messages import ToolCall
from agentrl_jax.tool_formats import (
    BracketToolFormat,
    FencedCodeToolFormat,
    FunctionTagToolFormat,
    HermesToolFormat,
    LlamaToolFormat,
    ParsedCalls,
    PythonListToolFormat,
    TagToolFormat,
    ToolFormat,
    UITarsToolFormat,
)

FORMATS: dict[str, ToolFormat] = {
    "hermes": HermesToolFormat(),
    "llama": LlamaToolFormat(),
    "python": PythonListToolFormat(),
    "functions": FunctionTagToolFormat(),
    "tags": TagToolFormat({"search": ("search", "query"), "python": ("run", "code")}),
    "fenced": FencedCodeToolFormat(),
    "brackets": BracketToolFormat(),
    "ui_tars": UITarsToolFormat(),
}


def schema(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TYPED = [
    schema(
        "f",
        whole={"type": "integer"},
        number={"type": "number"},
        flag={"type": "boolean"},
        items={"type": "array", "items": {"type": "number"}},
        maybe={"anyOf": [{"type": "integer"}, {"type": "null"}]},
        text={"type": "string"},
    ),
    schema("click", start_box={"type": "array", "items": {"type": "number"}}),
    schema("search", query={"type": "integer"}),
]

# format -> (text, content, calls)
EXAMPLES: dict[str, list[tuple[str, str, list[tuple[str, dict[str, Any]]]]]] = {
    "hermes": [
        (
            'See.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": [true, null]}}\n'
            '</tool_call>\n<tool_call>{"name":"é"}</tool_call>',
            "See.",
            [("add", {"a": 1, "b": [True, None]}), ("é", {})],
        ),
    ],
    "llama": [
        ('{"name": "add", "parameters": {"a": 1}}', "", [("add", {"a": 1})]),
        (
            'So: <|python_tag|>{"name": "f", "parameters": {}} ; {"name": "g", "arguments": {}}',
            "So:",
            [("f", {}), ("g", {})],
        ),
        ('{"type": "function", "name": "f", "parameters": {}}', "", [("f", {})]),
    ],
    "python": [
        (
            'So:\n[add(a=1, b=-2.5), m.f(x="a]b\\n", y=(1, 2), z={"k": None})]\nDone.',
            "So:\n\nDone.",
            [("add", {"a": 1, "b": -2.5}), ("m.f", {"x": "a]b\n", "y": [1, 2], "z": {"k": None}})],
        ),
        ("[f()]", "", [("f", {})]),
        ("[f('''it's \"[''', ')')]", "", []),
    ],
    "functions": [
        (
            "So.\n<tool_call>\n<function=f>\n<parameter=text>\na\n\nb\n</parameter>\n"
            "<parameter=x>1</parameter>\n</function>\n</tool_call>",
            "So.",
            [("f", {"text": "a\n\nb", "x": "1"})],
        ),
        (
            "<function=f></function> and <function=g><parameter=c></function></parameter>"
            "</function>",
            "and",
            [("f", {}), ("g", {"c": "</function>"})],
        ),
    ],
    "tags": [
        ("So. <search> red shoes </search>", "So.", [("search", {"query": "red shoes"})]),
        (
            "<python>print(1)</python><answer>2</answer>",
            "<answer>2</answer>",
            [("run", {"code": "print(1)"})],
        ),
    ],
    "fenced": [
        (
            "So:\n```python\nx = 1\nprint(x)\n```\nand\n```json\n{}\n```\n```py\n```",
            "So:\n\nand\n```json\n{}\n```",
            [("python", {"code": "x = 1\nprint(x)"}), ("python", {"code": ""})],
        ),
    ],
    "brackets": [
        ("search[red shoes]", "", [("search", {"query": "red shoes"})]),
        (
            "Thought: a[0] is b.\nAction 1: click[Buy [now]]\n",
            "Thought: a[0] is b.",
            [("click", {"target": "Buy [now]"})],
        ),
    ],
    "ui_tars": [
        (
            "Thought: It's there.\nAction: click(start_box='(10,20)')",
            "Thought: It's there.",
            [("click", {"start_box": "(10,20)"})],
        ),
        (
            "Action: drag(start_box='<|box_start|>(1,2)<|box_end|>', end_box='(3,4)')\n\n"
            "type(content='It\\'s \"x\\\\', don't\\n')\n\nwait()",
            "",
            [
                ("drag", {"start_box": "(1,2)", "end_box": "(3,4)"}),
                ("type", {"content": "It's \"x\\', don't\n"}),
                ("wait", {}),
            ],
        ),
        (
            "Action: click(point='<point>10 20</point>')",
            "",
            [("click", {"point": "<point>10 20</point>"})],
        ),
    ],
}
# format -> texts that call nothing
NO_CALLS: dict[str, list[str]] = {
    "hermes": ["", "hi", "</tool_call>", "<tool_response>{}</tool_response>"],
    "llama": ["", "hi", '{"answer": 3}', "{x}", '[{"name": "f"}]'],
    "python": ["", "[1, 2]", "see f(a=1)", "a [f(x=1)]", "["],
    "functions": ["", "<function>", "</function>", "<parameter=a>1</parameter>"],
    "tags": ["", "</search>", "<answer>1</answer>", "< search>x</search>"],
    "fenced": ["", "```", "```json\n{}\n```", "a ```python x```"],
    "brackets": ["", "a[0] = 1", "buy[x]", "search", "I search[x]"],
    "ui_tars": ["", "click(start_box='(1,2)')", "Finished."],
}
# format -> (text, a part of the error, calls that are well-formed)
MALFORMED: dict[str, list[tuple[str, str, int]]] = {
    "hermes": [
        ('<tool_call>{"name": "f", "arguments": {"a": 1}', "does not end in </tool_call>", 0),
        ('<tool_call>{"name": "f"}</tool_call><tool_call>{x}</tool_call>', "not valid JSON", 1),
        ('<tool_call>{"arguments": {}}</tool_call>', 'no "name"', 0),
        ('<tool_call>{"name": 3}</tool_call>', "name must be a text", 0),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "must be an object", 0),
        ("<tool_call>[]</tool_call>", "must be an object", 0),
        ('<tool_call>{"name": "f", "name": "g"}</tool_call>', "'name' occurs twice", 0),
        (
            '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
            "NaN is no JSON number",
            0,
        ),
        ('<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', "not JSON", 0),
        ('<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>', "not JSON", 0),
        ('<tool_call>{"name": "f"} {}</tool_call>', "text follows", 0),
        (f'<tool_call>{{"name": "f", "arguments": {"9" * 5000}}}</tool_call>', "not valid JSON", 0),
    ],
    "llama": [
        ('{"name": "f", "parameters": {', "not valid JSON", 0),
        ('{"name": "f"}; {"name":', "not valid JSON", 1),
        ('{"name": "f"} and more', "separated by ;", 1),
        ('{"parameters": {}}', 'no "name"', 0),
        ('<|python_tag|>brave.call(query="x")', "not valid JSON", 0),
        ("<|python_tag|>", "not valid JSON", 0),
    ],
    "python": [
        ("[f(a=1)", "does not end in ]", 0),
        ("[f(a='x)]", "string is not closed", 0),
        ("[f(a=b)]", "must be a Python literal", 0),
        ("[f(a=__import__('os'))]", "must be a Python literal", 0),
        ("[f(1)]", "needs a name", 0),
        ("[f(**{'a': 1}), g()]", "ambiguous", 1),
        ("[f(a=1, a=2)]", "a is ambiguous", 0),
        ("[f(a=1), 3]", "must be a call", 1),
        ("[f(a=1)(b=2)]", "must be a name", 0),
        ("[f(a={1: 2})]", "names as keys", 0),
        ("[f(a=1e999)]", "not JSON", 0),
        ("[f(a={1, 2})]", "not JSON", 0),
        ("[f(x) for x in y]", "must be written as", 0),
        ("[f(a=b'x')]", "not JSON", 0),
    ],
    "functions": [
        ("<function=f><parameter=a>1", "there is no </parameter>", 0),
        ("<function=f></function><function=g>", "is missing", 1),
        ("<function=f>a=1</function>", "is missing", 0),
        (
            "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
            "occurs twice",
            0,
        ),
        ("<function=></function>", "name must be a text", 0),
    ],
    "tags": [
        ("<search>red", "there is no </search>", 0),
        ("<search>a</search><python>x</search>", "there is no </python>", 1),
        ("<search>\ud800</search>", "not JSON", 0),
    ],
    "fenced": [
        ("```python\nx = 1", "does not end in a line ```", 0),
        ("```python\nx\n```\n```python", "does not end in a line ```", 1),
    ],
    "brackets": [
        ("search[red", "does not end in ]", 0),
        ("Action: buy[x]\nclick[y]", "no such action", 1),
        ("Action: think", "no such action", 0),
        ("search[", "does not end in ]", 0),
    ],
    "ui_tars": [
        ("Action: click", "must be written as", 0),
        ("Action:", "must be written as", 0),
        ("Action: click(start_box='(1,2)", "does not end in '", 0),
        ("Action: click(start_box=(1,2))", "must be written as name='value'", 0),
        ("Action: wait()\n\nclick(", "must be written as", 1),
        ("Action: f(a='1', a='2')", "occurs twice", 0),
    ],
}


def test_every_format_of_the_package_is_tested_here():
    classes = {
        value
        for name in tool_formats.__all__
        if (value := getattr(tool_formats, name)) not in (ParsedCalls, ToolFormat)
    }
    assert {type(tool_format) for tool_format in FORMATS.values()} == classes
    assert FORMATS.keys() == EXAMPLES.keys() == NO_CALLS.keys() == MALFORMED.keys()
    assert all(isinstance(tool_format, ToolFormat) for tool_format in FORMATS.values())


def pairs(cases: dict[str, list[Any]]) -> list[Any]:
    return [(name, case) for name, values in cases.items() for case in values]


@pytest.mark.parametrize(("name", "case"), pairs(EXAMPLES))
def test_calls_and_content_are_parsed(name: str, case: Any):
    text, content, calls = case
    parsed = FORMATS[name].parse(text)
    if not calls:  # the example is malformed only for want of a schema
        assert parsed.calls[0].error
        return
    assert parsed.content == content
    assert [(c.name, json.loads(c.arguments)) for c in parsed.calls] == calls
    assert [c.id for c in parsed.calls] == [f"call_{i}" for i in range(len(calls))]
    assert not any(c.error for c in parsed.calls)


@pytest.mark.parametrize(("name", "text"), pairs(NO_CALLS))
def test_a_text_without_calls_is_content(name: str, text: str):
    assert FORMATS[name].parse(text) == ParsedCalls(text)


@pytest.mark.parametrize(("name", "case"), pairs(MALFORMED))
def test_a_malformed_call_says_what_is_wrong(name: str, case: Any):
    text, reason, num_well_formed = case
    calls = FORMATS[name].parse(text).calls
    errors = [c.error for c in calls if c.error]
    assert len(errors) == 1 and reason in errors[0]
    assert len(calls) - 1 == num_well_formed


@pytest.mark.parametrize(
    ("name", "text", "arguments"),
    [
        (
            "functions",
            "<function=f><parameter=whole>3</parameter><parameter=number>1.5</parameter>"
            "<parameter=flag>True</parameter><parameter=items>[1, 2.5]</parameter>"
            "<parameter=maybe>null</parameter><parameter=text>3</parameter></function>",
            {
                "whole": 3,
                "number": 1.5,
                "flag": True,
                "items": [1, 2.5],
                "maybe": None,
                "text": "3",
            },
        ),
        (
            "functions",
            "<function=f><parameter=whole>x</parameter><parameter=number>NaN</parameter>"
            "<parameter=flag>1</parameter><parameter=items>(1, 2)</parameter>"
            "<parameter=maybe>2.0</parameter></function>",
            {"whole": "x", "number": "NaN", "flag": "1", "items": [1, 2], "maybe": 2},
        ),
        ("brackets", "search[12]", {"query": 12}),
        ("brackets", "search[twelve]", {"query": "twelve"}),
        ("tags", "<search>12</search>", {"query": 12}),
        ("ui_tars", "Action: click(start_box='(010,20)')", {"start_box": [10, 20]}),
        ("ui_tars", "Action: click(start_box='<point>1 2</point>')", {"start_box": [1, 2]}),
        ("ui_tars", "Action: click(start_box='[1, 2, 3.5, 4]')", {"start_box": [1, 2, 3.5, 4]}),
        ("python", "[f(1, 2.5, text='3')]", {"whole": 1, "number": 2.5, "text": "3"}),
        # JSON has types of its own: a text stays one.
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"whole": "3"}}</tool_call>',
            {"whole": "3"},
        ),
    ],
)
def test_bare_texts_become_the_types_of_the_schema(name: str, text: str, arguments: Any):
    (call,) = FORMATS[name].parse(text, TYPED).calls
    assert not call.error and json.loads(call.arguments) == arguments


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.text("ab'\"\\[]{}()<>,= \né`", max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=4,
)


def calls_of(arguments: Any) -> Any:
    return st.lists(st.tuples(names, st.dictionaries(names, arguments)), max_size=3)


names = st.from_regex(r"[a-z_]{1,5}", fullmatch=True)
contents = st.sampled_from(["", "I look.", "Two\nlines é"])
ONE_ARGUMENT = {"tags": ("search", "query"), "brackets": ("search", "query")}


def rendered_back(name: str, content: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    tool_format = FORMATS[name]
    written = [ToolCall("", tool, json.dumps(arguments)) for tool, arguments in calls]
    text = tool_format.render(content, written)
    parsed = tool_format.parse(text)
    assert parsed.content == content
    assert [(c.name, json.loads(c.arguments)) for c in parsed.calls] == calls, text


@pytest.mark.parametrize("name", ["hermes", "llama", "python"])
@given(
    content=contents, calls=st.lists(st.tuples(names, st.dictionaries(names, values)), max_size=3)
)
@settings(max_examples=60, deadline=None)
def test_typed_calls_are_parsed_as_they_were_rendered(name: str, content: str, calls: Any):
    keywords = {"if", "in", "is", "or", "as", "and", "not", "def", "del", "for", "try", "async"}
    if name == "python" and keywords & {tool for tool, _ in calls}:
        return
    if any("</tool_call>" in json.dumps(arguments) for _, arguments in calls):
        return
    if name == "python" and any(keywords & set(arguments) for _, arguments in calls):
        return
    rendered_back(name, content, calls)


texts = st.text("ab'\"\\(){}<>,= é/", max_size=8)


@pytest.mark.parametrize("name", ["functions", "ui_tars"])
@given(
    content=contents, calls=st.lists(st.tuples(names, st.dictionaries(names, texts)), max_size=3)
)
@settings(max_examples=60, deadline=None)
def test_calls_of_texts_are_parsed_as_they_were_rendered(name: str, content: str, calls: Any):
    rendered_back(name, content, calls)


@pytest.mark.parametrize("name", ["tags", "brackets", "fenced"])
@given(content=contents, value=texts.map(str.strip), count=st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_calls_of_one_text_are_parsed_as_they_were_rendered(
    name: str, content: str, value: str, count: int
):
    tool, argument = ONE_ARGUMENT.get(name, ("python", "code"))
    rendered_back(name, content, [(tool, {argument: value})] * count)


def test_what_a_format_cannot_write_is_a_user_error():
    two = ToolCall("", "search", '{"query": "a", "page": 2}')
    for name in ("tags", "brackets", "fenced"):
        with pytest.raises(UserError, match="choose another format"):
            FORMATS[name].render("", (two,))
    for tool_format in FORMATS.values():
        with pytest.raises(UserError, match="not JSON"):
            tool_format.render("", (ToolCall("", "search", "{"),))
        with pytest.raises(UserError, match="must be a JSON object"):
            tool_format.render("", (ToolCall("", "search", "[]"),))
    for name in ("tags", "brackets"):
        with pytest.raises(UserError, match="has no"):
            FORMATS[name].render("", (ToolCall("", "buy", "{}"),))


def all_texts(name: str) -> list[str]:
    return [
        *(case[0] for case in EXAMPLES[name]),
        *NO_CALLS[name],
        *(case[0] for case in MALFORMED[name]),
    ]


def check_calls(parsed: ParsedCalls) -> None:
    """Every call is malformed, or has a name and a JSON object."""
    for call in parsed.calls:
        if not call.error:
            assert call.name and isinstance(json.loads(call.arguments), dict)
            call.arguments.encode()


@pytest.mark.parametrize("name", FORMATS)
def test_a_text_cut_at_every_character_is_parsed(name: str):
    for text in all_texts(name):
        for end in range(min(len(text), 400)):
            check_calls(FORMATS[name].parse(text[:end], TYPED))
            check_calls(FORMATS[name].parse(text[end:], TYPED))


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_fragments_in_any_order_are_parsed(name: str, data: Any):
    pieces = st.sampled_from(
        [
            "<tool_call>", "</tool_call>", "<|python_tag|>", '{"name": "f"', '"arguments": {', "}",
            "<function=f>", "</function>", "<parameter=a>", "</parameter>", "<search>", "</search>",
            "```python\n", "\n```\n", "search[", "]", "Action: ", "click(", "a='", "')", "[f(",
            ")]", "\n", " ", "\x00", "\ud800", "é", "\\", "'", '"', "1e999", "NaN", ",", ":", ";",
        ]
    )  # fmt: skip
    check_calls(FORMATS[name].parse("".join(data.draw(st.lists(pieces, max_size=20))), TYPED))


def seconds_to_parse(name: str, text: str) -> float:
    gc.disable()  # a collection looks at the objects of all tests
    try:
        start = time.process_time()
        check_calls(FORMATS[name].parse(text, TYPED))
        return time.process_time() - start
    finally:
        gc.enable()


DEEP = 10_000
UNITS = [
    "<tool_call>", "</tool_call>", '<tool_call>{"', '<tool_call>"</tool_call>', "<tool_call> ",
    "<tool_call>{}</tool_call>", "<|python_tag|>", '{"name": "f"};', '{"name": "f"} ', "<function=",
    "<function=f>", "<function=f></function>", "<function=f><parameter=a>", "<parameter=a>",
    "<tool_call>\n", "<search>", "<search></search>", "<search><python>", "```python\n",
    "```python\n```\n", "```\n", "search[", "search[]\n", "Action:", "Action: f(a='1')\n\n",
    "Action: f(a='", "f(a='", "a='1', ", "'", '"', "'''", "\\'", "[f(", "[f(a=", "[f()]\n", "[",
    "(", "{", "{'a':", "[f(a=1),", " ", "\n", "a", "é", "-", "not ", "a.", "1+", "lambda:", "\x00",
]  # fmt: skip
STARTS = [
    "", "[f(a=", "[f(a='", "Action: f(a='", "<function=f><parameter=a>", "<search>", '{"name":',
    "<tool_call>", "<|python_tag|>", "```python\n", "search[",
]  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_repeats_a_thousand_times_is_parsed(name: str):
    for start in STARTS:
        for unit in UNITS:
            check_calls(FORMATS[name].parse(start + unit * 1000, TYPED))


@pytest.mark.parametrize("name", FORMATS)
def test_time_is_linear_in_the_text(name: str):
    """Four times the text takes four times as long; sixteen times would be quadratic."""
    for unit in UNITS:
        short, long = (seconds_to_parse(name, unit * n) for n in (2000, 8000))
        assert long < 6 * short + 0.05, unit


@pytest.mark.parametrize("name", FORMATS)
def test_arguments_nested_ten_thousand_deep_are_malformed(name: str):
    deep = {
        "hermes": '<tool_call>{"name": "f", "arguments": {"a": %s}}</tool_call>',
        "llama": '{"name": "f", "parameters": {"a": %s}}',
        "python": "[f(a=%s)]",
    }.get(name)
    if deep is None:
        return  # its values are texts
    for opening, closing in ("[]", "{}"):
        inner = (opening + ('"a":' if opening == "{" else "")) * DEEP
        (call,) = FORMATS[name].parse(deep % (inner + "1" + closing * DEEP)).calls
        assert "nested too deep" in call.error


@pytest.mark.parametrize("name", FORMATS)
def test_a_huge_value_is_parsed(name: str):
    value = "x" * 1_000_000
    argument = {"fenced": "code", "brackets": "query", "tags": "query"}.get(name, "text")
    tool = {"fenced": "python", "brackets": "search", "tags": "search"}.get(name, "f")
    text = FORMATS[name].render("", (ToolCall("", tool, json.dumps({argument: value})),))
    start = time.process_time()
    (call,) = FORMATS[name].parse(text).calls
    assert json.loads(call.arguments) == {argument: value} and time.process_time() - start < 1
