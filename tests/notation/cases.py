"""Texts of ours in the notation, by name: what both parsers must take alike, and what both must refuse.

The first word of a name says what the text is: a model, a graph, a function or a node. Names are stable, as
`expectations.txt` lists cases by them. Whether a text is taken is not said here: the reference parser decides.
"""

from collections.abc import Iterator, Mapping

Cases = Iterator[tuple[str, str]]

KINDS = ("model", "graph", "function", "node")

INTEGER_RANGES = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "bool": (0, 1),
}
# Types whose literals are bit patterns, with the number of bits of an entry. Packed types have one entry per byte.
BIT_PATTERNS = {
    "float16": 16,
    "bfloat16": 16,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "float8e8m0": 8,
    "float6e2m3": 6,
    "float6e3m2": 6,
    "float4e2m1": 8,
    "int4": 8,
    "uint4": 8,
    "int2": 8,
    "uint2": 8,
}
PER_BYTE = {"float4e2m1": 2, "int4": 2, "uint4": 2, "int2": 4, "uint2": 4}
FLOATS = ("float", "double")
COMPLEX = ("complex64", "complex128")
ELEMENT_TYPES = (*INTEGER_RANGES, *BIT_PATTERNS, *FLOATS, *COMPLEX, "string")
OTHER_TYPE_WORDS = ("seq", "map", "optional", "sparse_tensor", "opaque")
ATTRIBUTE_TYPES = ("float", "int", "string", "tensor", "graph", "sparse_tensor", "type_proto")


def all_cases() -> dict[str, str]:
    """Every text by its name."""
    found: dict[str, str] = {}
    groups = (
        *(blanks, names, strings, numbers_in_attributes, numbers_in_tensors, integers),
        *(types, attribute_values, attribute_lists, references, types_as_values, tensors_as_values, subgraphs),
        *(nodes, tensors_by_type, tensor_forms, graphs, info_blocks, functions, models),
        *(left_unread, taken_by_mistake, broken_nodes, broken_graphs, broken_functions, broken_models, deep),
    )
    for group in groups:
        for name, text in group():
            assert name not in found, f"two cases are called {name}"
            assert name.split("/")[0] in KINDS, name
            found[name] = text
    return found


def under(prefix: str, texts: Mapping[str, str], frame: str = "%") -> Cases:
    """The texts with the prefix before their names, each put for `%` in the frame."""
    for name, text in texts.items():
        yield f"{prefix}/{name}", frame.replace("%", text)


# Frames for what is no entry point by itself.
ATTRIBUTE = "y = Op<%>(x)"
VALUE = "y = Op<a = %>(x)"
INPUT = "g (% x) => () {}"
INITIALIZER = "g () => () <% = #> {}"


def slug(text: str) -> str:
    words = {"-": "minus-", "+": "plus-", ".": "-point-", " ": "-"}
    return "".join(words.get(letter, letter) for letter in text).strip("-").replace("--", "-")


# White space, comments, names, strings


def blanks() -> Cases:
    spaces = {"tab": "\t", "line-feed": "\n", "vertical-tab": "\v", "form-feed": "\f", "carriage-return": "\r"}
    node = split('[ n ] y , z = d . Op : v < a : ints = [ 1 , -2 ] > ( x , "" )')
    graph = split('g ( float [ 2 , 1 ] x = { 1 , 2 } ) => ( y ) < int64 w = [ "location" : "f" ] , seq ( string ) s > { }')
    function = split('< domain : "d" , opset_import : [ "d" : 1 ] > f < a , b = 2 > ( x ) => ( float y ) < float t > { }')
    model = split('< ir_version : 9 , metadata_props : [ "k" : "v" ] >') + graph + function
    for kind, words in zip(KINDS, (model, graph, function, node)):
        for name, space in spaces.items():
            yield f"{kind}/blank/{name}-between-all-words", space.join(["", *words, ""])
        yield f"{kind}/blank/mixed-between-all-words", " \t\r\n\v\f".join(["", *words, ""])
        yield f"{kind}/blank/as-little-as-possible", tight(words)
        yield f"{kind}/comment/between-all-words", " # 1, \"x\" } > <\n".join(["", *words, ""])
        yield f"{kind}/comment/several-lines-between-all-words", "#\n#two\n\n\t# three\n".join(["", *words, ""])
        yield f"{kind}/comment/at-the-end-without-line-feed", " ".join(words) + " # end"
        yield f"{kind}/comment/empty-at-the-end", " ".join(words) + "#"
    yield from under(
        "node/comment",
        {
            "directly-after-a-name": "y#c\n=Op#c\n(x#c\n)",
            "with-quotes": 'y = # "\nOp(x)',
            "with-backslash": "y = # \\\nOp(x)",
            "ended-by-carriage-return-and-line-feed": "y = # c\r\nOp(x)",
            "not-ended-by-carriage-return": "y = # c\rOp(\nOp2(x)",
            "not-ascii": "y = # äöü ∑ 🦀\nOp(x)",
            "no-comment-in-quotes": 'y = Op("x # no comment")',
            "double-sharp": "y = Op(x) ## twice",
        },
    )
    yield "model/comment/only-comments-around", "# before\n# more\ng () => () {} # after\n# last"
    yield "model/blank/byte-order-mark", "\ufeffg () => () {}"
    yield "model/blank/no-break-space", "g\u00a0() => () {}"
    yield "model/blank/line-separator", "g\u2028() => () {}"


def split(text: str) -> list[str]:
    return text.split(" ")


def tight(words: list[str]) -> str:
    """The words with a space only where two of them would become one."""
    text = ""
    for word in words:
        both = text[-1:] + word[0]
        text += (" " if both.replace("_", "a").isalnum() and len(both) == 2 else "") + word
    return text


def names() -> Cases:
    spellings = {
        "one-letter": "x",
        "capitals": "XYZ",
        "underscore": "_",
        "leading-underscores": "__x_",
        "digits-inside": "a1b2_3",
        "long": "n" * 300,
        "quoted": '"x"',
        "quoted-empty": '""',
        "quoted-slashes": '"/model/layer.0/out:0"',
        "quoted-starts-with-digit": '"0abc"',
        "quoted-only-blanks": '"  "',
        "quoted-keywords": '"=> < > { } ( ) [ ] @ ?"',
        "quoted-sharp": '"a#b"',
        "quoted-line-feed": '"a\nb"',
        "quoted-tab-and-carriage-return": '"a\tb\rc"',
        "quoted-escapes": r'"a\"b\\c\nd\/"',
        "quoted-not-ascii": '"größe_∑_🦀"',
        "quoted-escape-before-not-ascii": '"a\\éb"',
        "quoted-control": '"\x01\x7f"',
        "quoted-like-reference": '"@a"',
        "quoted-like-number": '"-1.5e3"',
    }
    bare = {name: text for name, text in spellings.items() if '"' not in text}
    yield from under("node/name/operand", spellings, "y = Op(%, %)")
    yield from under("node/name/result", spellings, "%, z = Op(x)")
    yield from under("node/name/label", spellings, "[%] y = Op(x)")
    yield from under("graph/name/graph", spellings, "% (x) => (y) {}")
    yield from under("graph/name/input", spellings, "g (float[2] %, %) => () {}")
    yield from under("graph/name/dimension", spellings, "g (float[%, 1] x) => () {}")
    yield from under("graph/name/initializer", spellings, "g () => () <float % = {1}> {}")
    yield from under("function/name/function", spellings, "% (x) => (y) {}")
    yield from under("function/name/parameter", spellings, "f (%, int64 %) => (%) {}")
    yield from under("function/name/attribute", spellings, "f <%> (x) => (y) {}")
    yield from under("function/name/attribute-with-default", spellings, "f <%: int = 1> (x) => (y) {}")
    yield from under("node/name/reference", spellings, "y = Op<a: int = @%>(x)")
    yield from under("node/name/attribute", bare, "y = Op<% = 1>(x)")
    yield from under("node/name/tensor", bare, "y = Op<a = float % {1}>(x)")
    yield from under("node/name/callee", bare, "y = %(x)")

    # No word is reserved where a type cannot stand.
    words = [*ELEMENT_TYPES, *OTHER_TYPE_WORDS]
    words += ["int", "floats", "tensor", "graph", "type_proto", "ir_version", "opset_import", "domain", "overload"]
    words += ["doc_string", "metadata_props", "inf", "nan", "infinity", "raw", "fields", "elided", "sparse", "notation", "true"]
    for word in words:
        yield f"node/word-as-name/{word}", f"[{word}] {word} = {word}.{word}:{word}<{word} = 1>({word}, {word})"
        yield f"graph/word-as-name/{word}", f'{word} (float "{word}") => ("{word}") <int64 "{word}"> {{}}'
        yield f"function/word-as-name/{word}", f'{word} <{word}> (float "{word}") => ("{word}") {{ "{word}" = {word}({word}) }}'
    yield "graph/word-as-name/as-dimension", "g (float[float, seq, opaque, inf] x) => () {}"
    yield "graph/word-as-name/attribute-type-words-as-untyped-inputs", "g (int, floats, tensor, graph, ints) => (int) {}"
    yield "graph/word-as-name/header-keys-as-untyped-inputs", "g (domain, overload, ir_version) => (domain) {}"
    yield "graph/word-as-name/type-word-with-more-letters", "g (floats, float17, seq_, map1, Float, FLOAT) => () {}"
    # Words with a meaning of their own in our extensions.
    yield "graph/word-as-name/extension-words-as-untyped-values", "g (x, raw) => (sparse) <sparse, raw, fields, elided, x> {}"
    for word in ("raw", "fields", "elided", "sparse", "x", "notation"):
        yield f"node/word-as-name/tensor-called-{word}", f"y = Op<a = float {word} {{1}}, b = float {word} = {{1}}>(x)"
        yield f"node/word-as-name/graph-called-{word}", f"y = Op<a = {word} (float[3] x) => () {{}}, b = {word} => () {{}}>(x)"
        yield f"node/word-as-name/graph-called-{word}-without-inputs", f"y = Op<a = {word} () => () {{}}>(x)"
    yield "node/word-as-name/graph-called-like-a-number-word-with-digit", "y = Op<a = nan9 () => () {}, b = inf0 => () {}>(x)"
    yield "node/word-as-name/graph-that-starts-with-a-number-word", "y = Op<a = info () => () {}, b = nano () => () {}>(x)"
    yield "node/word-as-name/graph-that-goes-on-after-infinity", "y = Op<a = infinityx () => () {}, b = infinite () => () {}>(x)"
    yield "node/word-as-name/graph-that-starts-with-a-type-word", "y = Op<a = floats () => () {}, b = seq1 () => () {}>(x)"
    yield "node/word-as-name/graph-with-underscore", "y = Op<a = _ () => () {}, b = _inf () => () {}>(x)"


def strings() -> Cases:
    texts = {
        "empty": '""',
        "blank": '" "',
        "plain": '"some text"',
        "escaped-quote": r'"say \"yes\""',
        "escaped-backslash": r'"C:\\data\\"',
        "only-escaped-backslash": r'"\\"',
        "only-escaped-quote": r'"\""',
        "escape-means-nothing-else": r'"\n\t\r\0\x41\u0041"',
        "escaped-blank": r'"a\ b"',
        "escaped-line-feed": '"a\\\nb"',
        "line-feeds": '"one\ntwo\r\n\nthree"',
        "comment-sign": '"a # b\n# c"',
        "brackets": '"<>()[]{}=>,:;@?"',
        "single-quotes": "\"it's\"",
        "not-ascii": '"naïve 漢字 🦀"',
        "escape-before-not-ascii": '"\\ß\\🦀"',
        "controls": '"\x01\x02\x1b\x7f"',
        "long": '"' + "0123456789" * 500 + '"',
    }
    yield from under("node/string/attribute", texts, VALUE)
    yield from under("node/string/list", texts, "y = Op<a = [%, %]>(x)")
    yield from under("node/string/tensor", texts, "y = Op<a = string[2] {%, %}>(x)")
    yield from under("model/string/doc", texts, "<doc_string: %> g () => () {}")
    yield from under("model/string/metadata", texts, "<metadata_props: [%: %]> g () => () {}")
    yield from under("graph/string/external", texts, 'g () => () <float[1] w = [%: %]> {}')


# Numbers

NUMBERS = {
    "zero": "0",
    "minus-zero": "-0",
    "one": "1",
    "minus-one": "-1",
    "leading-zeros": "000123",
    "minus-leading-zeros": "-007",
    "point-without-digits": "1.",
    "minus-point-without-digits": "-1.",
    "point-zero": "0.0",
    "minus-point-zero": "-0.0",
    "leading-zeros-and-point": "00.50",
    "fraction": "3.14159",
    "exponent": "1e5",
    "capital-exponent": "1E5",
    "exponent-with-plus": "2e+3",
    "exponent-with-minus": "2e-3",
    "exponent-with-zeros": "2e-003",
    "point-and-exponent": "1.e5",
    "fraction-and-exponent": "-12.5E-2",
    "zero-with-large-exponent": "0e999",
    "many-digits": "0." + "123456789" * 12,
    "many-digits-before-point": "1" + "0" * 35 + ".5",
    "integer-beyond-int64": "123456789012345678901234567890",
    "integer-just-beyond-int64": "9223372036854775808",
    "integer-beyond-uint64": "18446744073709551616",
    "minus-integer-beyond-int64": "-9223372036854775809",
    "nine-digits": "0.333333343",
    "nine-digits-next": "1.00000012",
    "seventeen-digits": "0.30000000000000004",
    "seventeen-digits-next": "1.0000000000000002",
    "two-to-the-24-plus-one": "16777217",
    "two-to-the-24-plus-three": "16777219.0",
    "two-to-the-53-plus-one": "9007199254740993",
    "two-to-the-53-plus-three": "9007199254740995.0",
    "halfway-single-to-even": "1.000000059604644775390625",
    "above-halfway-single": "1.00000005960464477539062500000000000000000000000000001",
    "below-halfway-single": "1.00000005960464477539062499999999999999999999999999999",
    "halfway-single-to-even-up": "1.000000178813934326171875",
    "halfway-double-to-even": "1.00000000000000011102230246251565404236316680908203125",
    "above-halfway-double": "1.000000000000000111022302462515654042363166809082031250000000001",
    # Rounding to double first and then to single gives another number.
    "rounded-once": "1.00000017881393432617187499",
    "rounded-once-again": "8589934591.9999",
    "largest-single": "3.4028234663852886e38",
    "largest-single-as-printed": "3.4028235e38",
    "rounds-down-to-largest-single": "3.4028235677973362e38",
    "smallest-normal-single": "1.17549435e-38",
    "largest-subnormal-single": "1.17549421e-38",
    "subnormal-single": "1.4e-45",
    "smallest-subnormal-single": "1e-45",
    "half-of-the-smallest-subnormal-single": "7.006492321624085354618e-46",
    "above-half-of-the-smallest-subnormal-single": "7.0064923216240853546186479164495806564013097093825788587853e-46",
    "below-single": "1e-60",
    "minus-below-single": "-1e-60",
    "below-double": "1e-400",
    "minus-below-double": "-1e-400",
    "tiny-exponent": "1e-999999999999",
    "subnormal-double": "4.9406564584124654e-324",
    "smallest-normal-double": "2.2250738585072014e-308",
    "largest-subnormal-double": "2.2250738585072009e-308",
    "the-known-slow-one": "2.2250738585072011e-308",
    "inf": "inf",
    "minus-inf": "-inf",
    "inf-in-capitals": "INF",
    "inf-in-mixed-case": "iNf",
    "infinity": "infinity",
    "minus-infinity-in-mixed-case": "-Infinity",
    "infinity-in-capitals": "INFINITY",
    "nan": "nan",
    "nan-in-mixed-case": "NaN",
    "nan-in-capitals": "NAN",
    "minus-nan": "-nan",
    "minus-nan-in-mixed-case": "-nAn",
}
TOO_LARGE_FOR_SINGLE = {
    "rounds-up-beyond-single": "3.4028235677973366e38",
    "beyond-single": "1e39",
    "minus-beyond-single": "-1e39",
    "integer-beyond-single": "1" + "0" * 40,
    "largest-double": "1.7976931348623157e308",
    "rounds-down-to-largest-double": "1.7976931348623158e308",
}
TOO_LARGE = {
    "rounds-up-beyond-double": "1.7976931348623159e308",
    "beyond-double": "1e309",
    "minus-beyond-double": "-1e309",
    "huge-exponent": "1e999999999999",
    "integer-beyond-double": "1" + "0" * 400,
}
NO_NUMBERS = {
    "no-digit-before-point": ".5",
    "plus": "+1",
    "plus-inf": "+inf",
    "hexadecimal": "0x10",
    "separator": "1_000",
    "suffix": "1f",
    "two-points": "1.2.3",
    "two-signs": "--1",
    "only-a-sign": "-",
    "only-a-point": ".",
    "exponent-without-digits": "1e",
    "exponent-with-sign-without-digits": "1e+",
    "exponent-with-point": "1e5.5",
    "two-exponents": "1e5e5",
    "space-after-sign": "- 1",
    "space-after-sign-of-float": "- 1.5",
    "line-after-sign": "-\n1",
    "comment-after-sign": "-#c\n1",
    "space-after-sign-of-inf": "- inf",
    "space-before-exponent": "1 e5",
    "inf-with-digit": "inf9",
    "inf-with-underscore": "inf_",
    "minus-nan-with-digit": "-nan1",
    "nan-with-brackets": "nan()",
    "inf-with-letters": "infx",
    "half-of-infinity": "infini",
    "too-long-infinity": "infinityy",
    "name": "one",
    "minus-name": "-one",
    "truth": "true",
    "roman": "Ⅷ",
    "arabic-digit": "١",
    "minus-sign-of-mathematics": "−1",
}


def numbers_in_attributes() -> Cases:
    numbers = {**NUMBERS, **TOO_LARGE_FOR_SINGLE, **TOO_LARGE}
    yield from under("node/number/bare", numbers, VALUE)
    yield from under("node/number/annotated-float", numbers, "y = Op<a: float = %>(x)")
    yield from under("node/number/annotated-floats", numbers, "y = Op<a: floats = [1, %]>(x)")
    yield from under("node/number/list-that-starts-with-float", numbers, "y = Op<a = [0.5, %]>(x)")
    yield from under("node/number/broken", NO_NUMBERS, VALUE)
    yield from under("node/number/broken-annotated-float", NO_NUMBERS, "y = Op<a: float = %>(x)")
    yield from under("node/number/broken-in-list", NO_NUMBERS, "y = Op<a = [0.5, %]>(x)")


def numbers_in_tensors() -> Cases:
    numbers = {**NUMBERS, **TOO_LARGE_FOR_SINGLE, **TOO_LARGE, **{f"no-{name}": text for name, text in NO_NUMBERS.items()}}
    for element in FLOATS:
        yield from under(f"node/number/{element}-tensor", numbers, f"y = Op<a = {element}[1] {{%}}>(x)")
    for element in COMPLEX:
        yield from under(f"node/number/{element}-tensor", numbers, f"y = Op<a = {element}[1] {{0, %}}>(x)")


INTEGERS = {
    "zero": "0",
    "minus-zero": "-0",
    "leading-zeros": "0000000000000000000000000000042",
    "largest": "9223372036854775807",
    "smallest": "-9223372036854775808",
    "above-largest": "9223372036854775808",
    "below-smallest": "-9223372036854775809",
    "far-above": "1" + "0" * 50,
    "float": "1.0",
    "exponent": "1e3",
    "space-after-sign": "- 5",
    "string": '"1"',
    "inf": "inf",
    "nothing": "",
}


def integers() -> Cases:
    yield from under("node/integer/bare", INTEGERS, VALUE)
    yield from under("node/integer/annotated", INTEGERS, "y = Op<a: int = %>(x)")
    yield from under("node/integer/annotated-list", INTEGERS, "y = Op<a: ints = [1, %]>(x)")
    yield from under("node/integer/int64-tensor", INTEGERS, "y = Op<a = int64[1] {%}>(x)")
    yield from under("graph/integer/dimension", INTEGERS, "g (float[%] x) => () {}")
    yield from under("model/integer/ir-version", INTEGERS, "<ir_version: %> g () => () {}")
    yield from under("model/integer/model-version", INTEGERS, "<model_version: %> g () => () {}")
    yield from under("model/integer/opset", INTEGERS, '<opset_import: ["": %]> g () => () {}')
    yield from under("function/integer/opset", INTEGERS, '<opset_import: ["": %]> f () => () {}')


# Types


def types() -> Cases:
    forms = {
        "scalar": "%",
        "any-rank": "%[]",
        "any-rank-with-blank": "%[ ]",
        "one-dimension": "%[3]",
        "all-kinds-of-dimensions": '%[N, 2, ?, "M + 1", _n, 0]',
        "in-sequence": "seq(%[N])",
        "as-key-of-map": "map(%, float)",
        "as-value-of-map": "map(string, %[])",
        "in-optional": "optional(%)",
        "sparse-scalar": "sparse_tensor(%)",
        "sparse-any-rank": "sparse_tensor(%[])",
        "sparse-with-dimensions": "sparse_tensor(%[4, N])",
    }
    for element in ELEMENT_TYPES:
        for name, form in forms.items():
            yield f"graph/type/{element}/{name}", INPUT.replace("%", form.replace("%", element))
        yield f"function/type/{element}", f"f ({element} x) => ({element}[] y) <{element}[N] t> {{}}"
        yield f"node/type/{element}", f"y = Op<a = {element}, b: type_proto = {element}[2, N], c = {element}[]>(x)"
    more = {
        "unnamed-dimensions": "float[?, ?, ?]",
        "zero-dimension": "float[0]",
        "many-dimensions": "float[" + ", ".join(map(str, range(40))) + "]",
        "negative-dimension": "float[-1]",
        "negative-dimensions": "float[-9223372036854775808, -2, 3]",
        "dimension-minus-zero": "float[-0]",
        "dimension-with-leading-zeros": "float[0012]",
        "quoted-empty-dimension": 'float[""]',
        "quoted-question-mark": 'float["?"]',
        "quoted-number": 'float["2"]',
        "sequence-of-sequence": "seq(seq(int64[]))",
        "sequence-of-map": "seq(map(int64, string))",
        "map-of-sequence": "map(int64, seq(float[]))",
        "map-of-map": "map(string, map(uint8, double[2]))",
        "map-of-optional": "map(bool, optional(float))",
        "optional-of-sequence": "optional(seq(float[N, ?]))",
        "optional-of-optional": "optional(optional(float))",
        "sequence-of-optional-of-map": "seq(optional(map(int32, seq(string[]))))",
        "sequence-of-sparse": "seq(sparse_tensor(float[3, 3]))",
        "optional-of-opaque": "optional(opaque(a.b, c))",
        "opaque-without-parts": "opaque()",
        "opaque-without-parts-with-blanks": "opaque ( )",
        "opaque-name": "opaque(thing)",
        "opaque-dotted-name": "opaque(com.acme.thing)",
        "opaque-domain-and-name": "opaque(acme, thing)",
        "opaque-dotted-domain-and-name": "opaque(com.acme, thing)",
        "opaque-with-blanks-around-dots": "opaque( com . acme\n.\tx , thing )",
        "opaque-type-words": "opaque(float.seq, map)",
        "blanks-everywhere": 'map ( int64 , seq ( float [ 2 , N , ? , "a" ] ) )',
    }
    yield from under("graph/type", more, INPUT)
    yield from under("graph/type-of-output", more, "g () => (% y) {}")
    yield from under("graph/type-of-value", more, "g () => () <% t> {}")
    yield from under("function/type", more, "f (% x) => (% y) <% t> {}")
    yield from under("node/type", more, "y = Op<a: type_proto = %>(x)")
    yield from under("node/type-bare", more, "y = Op<a = %, b = 1>(x)")
    broken = {
        "unknown-word": "floot",
        "capitals": "Float",
        "attribute-type": "int",
        "unclosed-dimensions": "float[2",
        "empty-first-dimension": "float[,2]",
        "trailing-comma": "float[2,]",
        "two-commas": "float[2,,3]",
        "dimensions-without-comma": "float[2 3]",
        "float-dimension": "float[1.5]",
        "dimension-inf-is-a-name-minus": "float[-inf]",
        "dotted-dimension": "float[a.b]",
        "dimension-with-type": "float[float[2]]",
        "two-lists-of-dimensions": "float[2][3]",
        "round-brackets": "float(2)",
        "sequence-without-type": "seq()",
        "sequence-without-brackets": "seq float",
        "sequence-of-two": "seq(float, float)",
        "sequence-unclosed": "seq(float",
        "sequence-with-square-brackets": "seq[float]",
        "sequence-of-unknown": "seq(thing)",
        "sequence-with-dimensions": "seq(float)[2]",
        "map-without-types": "map()",
        "map-with-one": "map(int64)",
        "map-with-three": "map(int64, float, float)",
        "map-with-sequence-as-key": "map(seq(int64), float)",
        "map-with-dimensions-of-key": "map(int64[2], float)",
        "optional-without-type": "optional()",
        "optional-alone": "optional",
        "sparse-without-type": "sparse_tensor()",
        "sparse-of-sequence": "sparse_tensor(seq(float))",
        "sparse-of-unknown": "sparse_tensor(thing)",
        "sparse-alone": "sparse_tensor",
        "opaque-alone": "opaque",
        "opaque-trailing-comma": "opaque(a,)",
        "opaque-leading-comma": "opaque(,a)",
        "opaque-three-parts": "opaque(a, b, c)",
        "opaque-trailing-dot": "opaque(a.)",
        "opaque-leading-dot": "opaque(.a)",
        "opaque-dotted-name-after-domain": "opaque(a, b.c)",
        "opaque-number": "opaque(1)",
        "tensor-word": "tensor(float)",
        "quoted-type": '"float"',
        "question-mark-alone": "float ?",
    }
    yield from under("graph/type-broken", broken, INPUT)
    yield from under("node/type-broken", broken, "y = Op<a: type_proto = %>(x)")
    yield "graph/type-broken/without-name", "g (float[2]) => () {}"
    yield "function/type-broken/without-name", "f (float) => () {}"
    yield "graph/type-broken/two-names", "g (float x y) => () {}"
    yield "graph/type-broken/after-the-name", "g (x float) => () {}"
    yield "graph/type-broken/type-word-as-untyped-name", "g (float, x) => () {}"
    yield "graph/type-broken/sequence-word-as-untyped-name", "g () => (seq) {}"


# Attributes


def attribute_values() -> Cases:
    values = {
        "int": "7",
        "float": "7.5",
        "string": '"seven"',
        "tensor": "int8[2] {7, -7}",
        "graph": "inner () => (y) { y = Seven() }",
        "type_proto": "seq(float)",
    }
    yield from under("node/attribute/bare", values, VALUE)
    for annotated in ATTRIBUTE_TYPES:
        for name, value in values.items():
            yield f"node/attribute/{annotated}-given-{name}", f"y = Op<a: {annotated} = {value}>(x)"
            yield f"node/attribute/{annotated}s-given-single-{name}", f"y = Op<a: {annotated}s = {value}>(x)"
    yield from under(
        "node/attribute",
        {
            "several": 'a = 1, b: float = 2, c = "three", d = [4, 5]',
            "all-bare": 'a = 1, b = 2.0, c = "", d = float {3}, e = g => () {}, f = float',
            "same-name-twice": "a = 1, a = 2.5",
            "name-like-annotation": "int: int = 1, floats: floats = [1]",
            "float-with-integer": "a: float = 3",
            "float-with-minus-zero": "a: float = -0",
            "float-with-large-integer": "a: float = 12345678901234567890123",
            "int-with-minus-zero": "a: int = -0",
            "blanks-around-colon": "a : int = 3",
            "no-blanks": "a:int=3,b=4",
        },
        ATTRIBUTE,
    )
    yield from under(
        "node/attribute/broken",
        {
            "empty-list": "",
            "no-name": "= 1",
            "no-value": "a =",
            "no-value-annotated": "a: int =",
            "no-equals": "a 1",
            "only-name": "a",
            "only-annotation": "a: int",
            "no-annotation-after-colon": "a: = 1",
            "unknown-annotation": "a: integer = 1",
            "annotation-in-capitals": "a: INT = 1",
            "annotation-is-an-element-type": "a: int64 = 1",
            "two-annotations": "a: int: int = 1",
            "trailing-comma": "a = 1,",
            "leading-comma": ", a = 1",
            "two-commas": "a = 1,, b = 2",
            "semicolon": "a = 1; b = 2",
            "no-comma": "a = 1 b = 2",
            "dotted-name": "a.b = 1",
            "name-starts-with-digit": "1a = 1",
            "equals-twice": "a == 1",
            "colon-for-equals": "a: 1",
            "int-given-float": "a: int = 1.0",
            "word-as-value": "a = word",
            "dotted-value": "a = b.c",
            "bracket-as-value": "a = (1)",
            "braces-as-value": "a = {1}",
            "tuple": "a = 1, 2",
            "single-quotes": "a = 'x'",
            "unclosed-quotes": 'a = "x',
            "quotes-ended-by-backslash": 'a = "x\\',
            "string-twice": 'a = "x" "y"',
        },
        ATTRIBUTE,
    )


def attribute_lists() -> Cases:
    elements = {
        "int": "1, -2, 3",
        "float": "1.0, -2.5, 3e0",
        "float-and-int": "1.0, 2, -0, 16777217",
        "int-and-float": "1, 2.0",
        "string": '"a", "", "c"',
        "string-and-int": '"a", 1',
        "int-and-string": '1, "a"',
        "one-int": "1",
        "one-float": "inf",
        "special-floats": "nan, -inf, Infinity, -NaN",
        "one-string": '"x"',
        "nothing": "",
        "only-comma": ",",
        "trailing-comma": "1, 2,",
        "leading-comma": ", 1",
        "two-commas": "1,, 2",
        "no-comma": "1 2",
        "list": "[1], [2]",
        "empty-list": "[]",
        "int-and-unknown-word": "1, word",
        "int-and-tensor": "1, float {1}",
        "string-and-type": '"a", float',
        "float-and-graph": "1.5, g => () {}",
        "int-and-reference": "1, @b",
    }
    yield from under("node/list/bare", elements, "y = Op<a = [%]>(x)")
    for annotation in ("int", "float", "string"):
        yield from under(f"node/list/{annotation}s", elements, f"y = Op<a: {annotation}s = [%]>(x)")
    for annotation in ATTRIBUTE_TYPES:
        yield f"node/list/{annotation}s-empty-annotated", f"y = Op<a: {annotation}s = [], b: {annotation}s = [ ]>(x)"
        yield f"node/list/{annotation}-empty-under-singular", f"y = Op<a: {annotation} = []>(x)"
    yield "node/list/long", f"y = Op<a = [{', '.join(map(str, range(-500, 500)))}]>(x)"
    yield "node/list/many-floats", f"y = Op<a = [{', '.join(str(n / 7) for n in range(300))}]>(x)"
    yield "node/list/unclosed", "y = Op<a = [1, 2>(x)"
    yield "node/list/closed-by-brace", "y = Op<a = [1, 2}>(x)"


def references() -> Cases:
    for annotation in ATTRIBUTE_TYPES:
        yield f"node/reference/{annotation}", f"y = Op<a: {annotation} = @b>(x)"
        yield f"node/reference/{annotation}s", f"y = Op<a: {annotation}s = @b>(x)"
    yield from under(
        "node/reference",
        {
            "bare": "a = @b",
            "same-name": "a: int = @a",
            "blank-after-sign": "a: int = @ b",
            "comment-after-sign": "a: int = @ # c\n b",
            "quoted": 'a: float = @"odd name"',
            "quoted-empty": 'a: float = @""',
            "quoted-bare": 'a = @"odd name"',
            "type-word": "a: int = @float",
            "several": "a: int = @b, c: floats = @d, e = 1",
        },
        ATTRIBUTE,
    )
    yield from under(
        "node/reference/broken",
        {
            "no-name": "a: int = @",
            "two-signs": "a: int = @@b",
            "number": "a: int = @1",
            "dotted": "a: int = @b.c",
            "after-value": "a: int = 1 @b",
            "list-under-plural": "a: ints = [@b]",
            "int-then-reference": "a = [1, @b]",
            "before-name": "@a = 1",
        },
        ATTRIBUTE,
    )


def types_as_values() -> Cases:
    yield from under(
        "node/type-as-value",
        {
            "bare-then-attribute": "a = float, b = 1",
            "bare-last": "b = 1, a = float[2]",
            "annotated": "a: type_proto = map(int64, string)",
            "opaque-empty": "a = opaque()",
            "opaque-name": "a = opaque(n)",
            "opaque-domain": "a = opaque(d.e, n)",
            "with-symbols": "a = float[N, ?]",
        },
        ATTRIBUTE,
    )
    yield from under(
        "node/type-as-value/broken",
        {
            "under-tensor": "a: tensor = float",
            "under-graph": "a: graph = float",
            "sequence-with-values": "a = seq(float) {1}",
            "sequence-with-name": "a = seq(float) w {1}",
            "with-external-data-but-no-equals": 'a = float[1] ["location": "f"]',
            "any-rank-with-values": "a = float[] {1}",
            "symbol-with-values": "a = float[N] {1}",
            "unnamed-with-values": "a = float[?] {1}",
            "sparse-with-values": "a = sparse_tensor(float[1]) {1}",
            "opaque-with-values": "a = opaque() {1}",
        },
        ATTRIBUTE,
    )


def tensors_as_values() -> Cases:
    yield from under(
        "node/tensor-as-value",
        {
            "bare": "a = float[2] {1, 2}",
            "annotated": "a: tensor = float[2] {1, 2}",
            "equals": "a = float[2] = {1, 2}",
            "name": "a = float[2] w {1, 2}",
            "name-and-equals": "a = float[2] w = {1, 2}",
            "name-annotated": "a: tensor = float[2] w {1, 2}",
            "name-like-type": "a = float[2] float {1, 2}",
            "name-like-sequence": "a = float[2] seq {1, 2}",
            "name-like-inf": "a = float[1] inf {1}",
            "external": 'a = float[2] = ["location": "f.bin"]',
            "external-annotated": 'a: tensor = float[2] = ["location": "f.bin", "offset": "8", "length": "8"]',
            "external-name": 'a = float[2] w ["location": "f.bin"]',
            "external-name-and-equals": 'a = float[2] w = ["location": "f.bin"]',
            "external-with-other-keys": 'a = float[2] = ["a": "", "": "b", "a": "c"]',
            "scalar": "a = double {1}",
            "empty": "a = float[0] {}",
            "empty-with-blanks": "a = float[0, 3] { }",
            "two": "a = float {1}, b = int64[1] {2}",
            "no-blanks": "a=float[2]w={1,2}",
        },
        ATTRIBUTE,
    )
    yield from under(
        "node/tensor-as-value/broken",
        {
            "under-int": "a: int = int64 {1}",
            "under-tensors": "a: tensors = float {1}",
            "under-type": "a: type_proto = float {1}",
            "square-brackets": "a = float[2] = [1, 2]",
            "no-comma": "a = float[2] {1 2}",
            "unclosed": "a = float[2] {1, 2",
            "trailing-comma": "a = float[2] {1, 2,}",
            "leading-comma": "a = float[2] {, 1}",
            "two-equals": "a = float[2] = = {1, 2}",
            "nested-braces": "a = float[2, 1] {{1}, {2}}",
            "two-names": "a = float[1] w v {1}",
            "dotted-name": "a = float[1] w.v {1}",
            "external-empty": "a = float[1] = []",
            "external-trailing-comma": 'a = float[1] = ["location": "f",]',
            "external-without-value": 'a = float[1] = ["location"]',
            "external-with-number": 'a = float[1] = ["offset": 8]',
            "external-with-bare-key": 'a = float[1] = [location: "f"]',
            "external-with-equals": 'a = float[1] = ["location" = "f"]',
        },
        ATTRIBUTE,
    )


def subgraphs() -> Cases:
    yield from under(
        "node/subgraph",
        {
            "empty": "a = g () => () {}",
            "annotated": "a: graph = g () => () {}",
            "without-inputs": "a = g => () {}",
            "inputs-and-outputs": "a = g (float[N] i, j) => (float[N] o) { o = Add(i, j) }",
            "two": "then_branch = t () => (o) { o = One() }, else_branch = e () => (o) { o = Two() }",
            "between-others": 'n = 1, a = g () => () {}, s = "x"',
            "with-initializers": "a = g () => (o) <float[2] w = {1, 2}, float[2] v> { v = Neg(w) o = Neg(v) }",
            "with-default-input": "a = g (int64[1] n = {3}) => (o) { o = Copy(n) }",
            "with-reference-inside": "a = g () => (o) { o = Op<v: int = @outer>() }",
            "three-levels": "a = g () => (o) { o = B<b = h () => (p) { p = C<c = i () => (q) { q = D() }>() }>() }",
            "attributes-after-inside": "a = g () => (o) { o = Op(x) <k = 1> p = Op(o) <k = 2> }",
            "comments-inside": "a = g # name\n() => # arrow\n() { # nothing\n }",
        },
        ATTRIBUTE,
    )
    yield "node/subgraph/after-operands", "y = If(c) <t = g () => (o) { o = A() }, e: graph = h => (o) { o = B() }>"
    yield from under(
        "node/subgraph/broken",
        {
            "no-nodes": "a = g () => ()",
            "no-arrow": "a = g () () {}",
            "no-outputs": "a = g () => {}",
            "under-tensor": "a: tensor = g () => () {}",
            "under-graphs": "a: graphs = g () => () {}",
            "called-like-inf": "a = inf () => () {}",
            "called-like-nan": "a = NaN () => () {}",
            "called-like-infinity": "a = infinity () => () {}",
            "called-like-inf-with-underscore": "a = inf_graph () => () {}",
            "called-like-type": "a = float () => () {}",
            "called-like-sequence": "a = seq () => () {}",
            "without-name": "a = () => () {}",
            "with-header": 'a = <ir_version: 9> g () => () {}',
        },
        ATTRIBUTE,
    )


# Nodes


def nodes() -> Cases:
    operands = {
        "none": "",
        "blank": " ",
        "one": "x",
        "two": "x, y",
        "without-blanks": "x,y,z",
        "only-comma": ",",
        "two-commas": ",,",
        "three-commas": " , , , ",
        "gap-first": ",x",
        "two-gaps-first": ",,x",
        "gap-inside": "x,,y",
        "two-gaps-inside": "x,,,y",
        "trailing-comma": "x,",
        "two-trailing-commas": "x,,",
        "three-trailing-commas": "x,,,",
        "empty": '""',
        "empty-first": '"", x',
        "empty-last": 'x, ""',
        "empty-inside": 'x, "", y',
        "empty-and-trailing-comma": '"",',
        "empty-twice": '"", ""',
        "gap-and-empty": ',""',
        "empty-and-gap": '"",,',
        "quoted": '"x y", "z"',
        "same-twice": "x, x",
        "comments-in-gaps": "x, # gap\n, y # last\n",
        "many": ", ".join(f"i{n}" for n in range(200)),
    }
    yield from under("node/operands", operands, "y = Op(%)")
    yield from under("node/results", operands, "% = Op(x)")
    yield from under("graph/results-in-block", operands, "g () => () { % = Op() % = Op() }")
    yield from under(
        "node/operands/broken",
        {
            "no-comma": "x y",
            "dotted": "x.y",
            "number": "1",
            "typed": "float x",
            "reference": "@x",
            "keyword-argument": "x = y",
            "semicolon": "x; y",
            "minus": "-x",
            "call": "F(x)",
            "list": "[x]",
        },
        "y = Op(%)",
    )
    yield "node/operands/broken/no-closing-bracket", "y = Op(x"
    yield "node/operands/broken/no-opening-bracket", "y = Op x)"
    yield "node/operands/broken/no-brackets", "y = Op"

    callees = {
        "plain": "Op",
        "domain": "acme.Op",
        "dotted-domain": "com.acme.ops.Op",
        "blanks-around-dots": "com . acme\n.\tOp",
        "comments-around-dots": "com # a\n. # b\nOp",
        "overload": "Op:fast",
        "domain-and-overload": "com.acme.Op:v2",
        "blanks-around-colon": "acme.Op : v2",
        "underscores": "_a.__Op_:_v",
        "same-parts": "a.a.a",
    }
    yield from under("node/callee", callees, "y = %(x)")
    yield from under("node/callee-with-attributes", callees, "y = %<a = 1>(x)")
    yield from under("node/callee-with-attributes-after", callees, "y = %(x)<a = 1>")
    yield from under(
        "node/callee/broken",
        {
            "trailing-dot": "acme.Op.",
            "two-dots": "acme..Op",
            "number": "1Op",
            "number-part": "acme.1",
            "slash": "acme/Op",
            "minus": "acme-x.Op",
            "two-words": "acme Op",
            "overload-missing": "Op:",
            "overload-number": "Op:1",
            "two-overloads": "Op:a:b",
            "overload-dotted": "Op:a.b",
            "overload-quoted-unclosed": 'Op:"a',
            "double-colon": "acme::Op",
            "reference": "@Op",
        },
        "y = %(x)",
    )
    yield from under(
        "node/label",
        {
            "name": "[n1] y = Op(x)",
            "blanks": "[ n1 ]\n y = Op(x)",
            "empty": "[] y = Op(x)",
            "empty-with-blank": "[ ] y = Op(x)",
            "empty-quoted": '[""] y = Op(x)',
            "quoted": '["layer.0/add"] y = Op(x)',
            "before-no-results": "[n] = Op(x)",
            "before-gap": "[n] , y = Op(x)",
        },
    )
    yield from under(
        "node/label/broken",
        {
            "two-names": "[a b] y = Op(x)",
            "comma": "[a, b] y = Op(x)",
            "number": "[1] y = Op(x)",
            "dotted": "[a.b] y = Op(x)",
            "unclosed": "[a y = Op(x)",
            "two-labels": "[a] [b] y = Op(x)",
            "round": "(a) y = Op(x)",
            "after-results": "y [a] = Op(x)",
        },
    )
    yield from under(
        "node/attributes-position",
        {
            "before": "y = Op <a = 1> (x)",
            "after": "y = Op (x) <a = 1>",
            "before-without-operands": "y = Op<a = 1>()",
            "after-without-operands": "y = Op()<a = 1>",
            "none": "y = Op(x)",
        },
    )
    yield from under(
        "graph/nodes",
        {
            "none": "{}",
            "none-with-blank": "{ }",
            "one": "{ y = Op(x) }",
            "two-on-one-line": "{ a = Op(x) b = Op(a) }",
            "two-without-blanks": "{a=Op(x)b=Op(a)}",
            "three-lines": "{\n a = Op(x)\n b = Op(a)\n c = Op(b)\n}",
            "labels": '{ [first] a = Op(x) [] b = Op(a) ["third/x"] c = Op(b) }',
            "attributes-after-then-label": "{ a = Op(x) <k = 1> [n] b = Op(a) <k = 2> }",
            "attributes-after-then-node": "{ a = Op(x) <k = 1> b = Op(a) }",
            "no-results": "{ = Op(x) = Op(x) }",
            "comma-which-is-a-gap-in-the-results": "{ a = Op(x), b = Op(a) }",
            "quoted-results": '{ "a b" = Op(x) "" = Op(x) }',
            "many": "{ " + " ".join(f"v{n + 1} = Op<n = {n}>(v{n})" for n in range(300)) + " }",
            "all-parts": '{ [n] a, "b", = d.e.Op:o<i: int = 1, r: floats = @p>("x", , z,) }',
        },
        "g (x) => (y) %",
    )
    yield from under(
        "graph/nodes/broken",
        {
            "missing": "",
            "unclosed": "{ y = Op(x)",
            "semicolon": "{ a = Op(x); b = Op(a) }",
            "attributes-on-both-sides": "{ a = Op<k = 1>(x)<k = 2> }",
            "attributes-twice-after": "{ a = Op(x)<k = 1><k = 2> }",
            "without-equals": "{ Op(x) }",
            "two-equals": "{ a = b = Op(x) }",
            "empty-attributes": "{ a = Op<>(x) }",
            "empty-attributes-after": "{ a = Op(x)<> }",
            "arrow": "{ a => Op(x) }",
            "operator": "{ a = x + y }",
            "only-a-name": "{ a }",
            "square-brackets": "[ a = Op(x) ]",
            "nested-block": "{ { a = Op(x) } }",
            "typed-result": "{ float[2] a = Op(x) }",
            "graph-inside": "{ h () => () {} }",
        },
        "g (x) => (y) %",
    )


# Tensors


def tensors_by_type() -> Cases:
    for element, (low, high) in INTEGER_RANGES.items():
        yield from tensor(element, "limits", "2", f"{low}, {high}")
        yield from tensor(element, "small", "2, 2", "0, 1, 1, 0")
        yield from tensor(element, "minus-zero", "1", "-0")
        yield from tensor(element, "leading-zeros", "1", "0001")
        yield from tensor(element, "above", "1", f"{high + 1}")
        yield from tensor(element, "below", "1", f"{low - 1}")
        yield from tensor(element, "above-32-bits", "1", f"{2**31}") if element != "int32" else ()
        yield from tensor(element, "above-64-bits", "1", f"{2**64}") if element != "uint64" else ()
        yield from tensor(element, "below-64-bits", "1", f"{-(2**63) - 1}") if element != "int64" else ()
    for element, bits in BIT_PATTERNS.items():
        yield from tensor(element, "limits", f"{2 * PER_BYTE.get(element, 1)}", f"0, {2**bits - 1}")
        yield from tensor(element, "some", f"{3 * PER_BYTE.get(element, 1)}", f"1, {2 ** (bits - 1)}, {2 ** (bits - 1) - 1}")
        yield from tensor(element, "above", f"{PER_BYTE.get(element, 1)}", f"{2**bits}")
        yield from tensor(element, "minus-one", f"{PER_BYTE.get(element, 1)}", "-1")
        yield from tensor(element, "above-32-bits", f"{PER_BYTE.get(element, 1)}", f"{2**31}")
        if element in PER_BYTE:
            yield from tensor(element, "not-a-full-byte", f"{PER_BYTE[element] + 1}", "18, 1")
            yield from tensor(element, "one-entry-per-element", "8", "0, 1, 0, 1, 0, 1, 0, 1")
    for element in (*INTEGER_RANGES, *BIT_PATTERNS):
        shape = f"{PER_BYTE.get(element, 1)}"
        yield from tensor(element, "given-float", shape, "1.0")
        yield from tensor(element, "given-exponent", shape, "1e0")
        yield from tensor(element, "given-inf", shape, "inf")
        yield from tensor(element, "given-string", shape, '"1"')
        yield from tensor(element, "given-truth", shape, "true")
        yield from tensor(element, "given-blank-after-sign", shape, "- 1")
    for element in FLOATS:
        yield from tensor(element, "plain", "2, 3", "1, 2., -3.5, 4e-1, inf, -nan")
        yield from tensor(element, "given-string", "1", '"1"')
        yield from tensor(element, "given-truth", "1", "false")
    for element in COMPLEX:
        yield from tensor(element, "plain", "2", "1, 2., -3.5, 4e-1")
        yield from tensor(element, "special", "1", "-inf, nan")
        yield from tensor(element, "odd-number", "2", "1, 2, 3")
        yield from tensor(element, "given-string", "1", '"1", "2"')
        yield from tensor(element, "given-pair-in-brackets", "1", "(1, 2)")
    yield from tensor("string", "plain", "3", r'"a", "", "c\"d"')
    yield from tensor("string", "given-int", "1", "1")
    yield from tensor("string", "given-word", "1", "word")
    yield from tensor("string", "given-float", "1", "1.5")
    for element in ELEMENT_TYPES:
        yield f"node/tensor/{element}/no-elements", f"y = Op<a = {element}[0] {{}}>(x)"
        yield f"node/tensor/{element}/no-elements-of-many", f"y = Op<a = {element}[3, 0, 2] {{ }}>(x)"
        one = {"string": '"s"', **dict.fromkeys(COMPLEX, "1, 0")}.get(element, "1")
        yield f"node/tensor/{element}/scalar", f"y = Op<a = {element} {{{one}}}>(x)"
        yield f"node/tensor/{element}/named", f"y = Op<a = {element} w {{{one}}}>(x)"
        yield f"graph/tensor/{element}/initializer", f"g () => () <{element} w = {{{one}}}, {element}[1] v> {{}}"
        yield f"graph/tensor/{element}/default-of-input", f"g ({element}[1] w = {{{one}}}) => () {{}}"
        yield f"graph/tensor/{element}/external", f'g () => () <{element}[5] w = ["location": "f"]> {{}}'
        yield f"node/tensor/{element}/symbol", f"y = Op<a = {element}[N] {{{one}}}>(x)"


def tensor(element: str, name: str, shape: str, literals: str) -> Cases:
    yield f"node/tensor/{element}/{name}", f"y = Op<a = {element}[{shape}] {{{literals}}}>(x)"


def tensor_forms() -> Cases:
    yield from under(
        "node/tensor/size",
        {
            "too-few": "float[3] {1, 2}",
            "too-many": "float[2] {1, 2, 3}",
            "none-of-two": "float[2] {}",
            "none-of-scalar": "float {}",
            "two-of-scalar": "float {1, 2}",
            "some-of-none": "float[0] {1}",
            "too-few-strings": 'string[2] {"a"}',
            "too-many-int64": "int64[1] {1, 2}",
            "negative-dimension": "float[-1] {1}",
            "two-negative-dimensions": "float[-1, -1] {1}",
            "beyond-64-bits": "float[4294967296, 4294967296] {}",
            "beyond-64-bits-with-zero": "float[4294967296, 4294967296, 0] {}",
            "external-negative-dimension": 'float[-1] = ["location": "f"]',
        },
        VALUE,
    )
    yield from under(
        "node/tensor/without-values",
        {
            "name": "float[2] w",
            "name-of-none": "float[0] w",
            "name-annotated": "float w",
            "equals": "float[2] =",
            "name-and-equals": "float[2] w =",
        },
        "y = Op<a: tensor = %>(x)",
    )
    yield "graph/tensor/without-values/initializer", "g () => () <float[2] w = > {}"
    yield "graph/tensor/without-values/initializer-of-none", "g () => () <float[0] w =, float v> {}"
    yield "graph/tensor/without-values/default-of-input", "g (float[2] x =) => () {}"
    yield "graph/tensor/without-values/two-defaults", "g (float[2] x =, float y =) => () {}"


# Graphs


def graphs() -> Cases:
    yield from under(
        "graph/frame",
        {
            "empty": "g () => () {}",
            "no-blanks": "g()=>(){}",
            "without-inputs": "g => () {}",
            "without-inputs-tight": "g=>(){}",
            "without-inputs-with-output": "g => (float y) { y = One() }",
            "unnamed": '"" () => () {}',
            "unnamed-without-inputs": '"" => () {}',
            "inputs": "g (float x, int64[] y, seq(string) z) => () {}",
            "outputs": "g () => (float x, int64[] y, opaque() z) {}",
            "untyped": "g (x, y) => (z) {}",
            "partly-typed": "g (x, float y, z) => (float a, b) {}",
            "same-name-twice": "g (x, float x) => (x, x) {}",
            "input-is-output": "g (float[N] x) => (float[N] x) {}",
            "called-like-type": "float (float x) => () {}",
            "called-like-inf": "inf () => () {}",
        },
    )
    yield from under(
        "graph/default",
        {
            "one": "float[2] x = {1, 2}",
            "scalar": "int64 x = {-3}",
            "first-of-two": "float[1] x = {1}, float y",
            "last-of-two": "y, float[1] x = {1}",
            "both": 'float[1] x = {1}, string[2] y = {"a", "b"}',
            "external": 'float[2] x = ["location": "w.bin", "offset": "64"]',
            "empty": "float[0] x = {}",
            "quoted": 'float[1] "x/y" = {1}',
        },
        "g (%) => () {}",
    )
    yield from under(
        "graph/default/broken",
        {
            "untyped": "x = {1}",
            "any-rank": "float[] x = {1}",
            "symbol": "float[N] x = {1}",
            "unnamed-dimension": "float[?] x = {1}",
            "sequence": "seq(float) x = {1}",
            "sparse": "sparse_tensor(float[1]) x = {1}",
            "opaque": "opaque() x = {1}",
            "without-equals": "float[1] x {1}",
            "without-braces": "float x = 1",
            "typed-value": "float x = float {1}",
            "name-as-value": "float x = y",
        },
        "g (%) => () {}",
    )
    yield "graph/default/broken/of-output", "g () => (float[1] y = {1}) {}"


def info_blocks() -> Cases:
    yield from under(
        "graph/info",
        {
            "empty": "",
            "blank": " ",
            "value": "float[N] t",
            "values": "float[N] t, seq(int64) s, map(string, float) m",
            "untyped-value": "t",
            "untyped-and-typed": "t, float u, v",
            "initializer": "float[2] w = {1, 2}",
            "initializers": 'float[2] w = {1, 2}, string s = {"a"}, int8[1, 1] i = {-128}',
            "value-then-initializer": "float t, float w = {1}",
            "initializer-then-value": "float w = {1}, float t",
            "mixed": "float t, float w = {1}, u, int64[1] v = {2}, seq(float) s",
            "value-and-initializer-of-one-name": "float w, float w = {1}",
            "external": 'float[3] w = ["location": "w.bin"]',
            "external-all-keys": 'float[3] w = ["location": "w.bin", "offset": "4096", "length": "12", "checksum": "00ff"]',
            "external-unknown-key": 'float[3] w = ["location": "w.bin", "colour": "red"]',
            "external-key-twice": 'float[3] w = ["location": "a", "location": "b"]',
            "external-then-value": 'float[3] w = ["location": "w.bin"], float t',
            "quoted-names": 'float "w/1" = {1}, float "t 2"',
            "comments": "float t, # first\n float w = # second\n {1} # done\n",
        },
        "g () => (y) <%> {}",
    )
    yield from under(
        "graph/info/broken",
        {
            "leading-comma": ", float t",
            "trailing-comma": "float t,",
            "two-commas": "float t,, float u",
            "no-comma": "float t float u",
            "semicolon": "float t; float u",
            "untyped-initializer": "w = {1}",
            "initializer-of-any-rank": "float[] w = {1}",
            "initializer-with-symbol": "float[N] w = {1}",
            "initializer-of-sequence": "seq(float) w = {1}",
            "initializer-without-braces": "float w = 1",
            "initializer-without-equals": "float w {1}",
            "external-empty": "float w = []",
            "type-only": "float",
            "unclosed-values": "float w = {1",
            "attribute": "a: int = 1",
            "number": "1",
            "pairs": '"a": "b"',
        },
        "g () => (y) <%> {}",
    )
    yield "graph/info/broken/unclosed", "g () => () <float t {}"
    yield "graph/info/broken/two-blocks", "g () => () <float t> <float u> {}"
    yield "graph/info/broken/before-outputs", "g () <float t> => () {}"
    yield "graph/info/with-defaults", "g (float[1] x = {1}, float y) => (z) <float[1] w = {2}, float t, float[1] v = {3}> {}"


# Functions


def functions() -> Cases:
    yield from under(
        "function/frame",
        {
            "empty": "f () => () {}",
            "no-blanks": "f()=>(){}",
            "unnamed": '"" () => () {}',
            "one-to-one": "f (x) => (y) { y = Op(x) }",
            "many": "f (a, b, c) => (d, e) { d = Op(a, b) e = Op(c) }",
            "typed-input": "f (float[N] x) => (y) {}",
            "typed-output": "f (x) => (float[N] y) {}",
            "typed-and-untyped": "f (float a, b, seq(int64) c) => (d, float[] e) {}",
            "quoted": '"f g" ("x y") => (float "z/1") {}',
            "same-name-twice": "f (x, float x) => (x) {}",
            "empty-names": 'f ("", "") => ("") {}',
        },
    )
    yield from under(
        "function/header",
        {
            "domain": '<domain: "d">',
            "domain-empty": '<domain: "">',
            "overload": '<overload: "v2">',
            "overload-empty": '<overload: "">',
            "doc": '<doc_string: "what it does">',
            "opset": '<opset_import: ["": 18]>',
            "opsets": '<opset_import: ["": 18, "com.acme": 1, "": -1]>',
            "opset-empty": "<opset_import: []>",
            "all": '<domain: "d", overload: "o", opset_import: ["": 1], doc_string: "s">',
            "all-reversed": '<doc_string: "s", opset_import: ["": 1], overload: "o", domain: "d">',
            "no-blanks": '<domain:"d",opset_import:["":1]>',
            "blanks": '< domain : "d" , opset_import : [ "" : 1 ] >',
            "none": "",
            "odd-strings": r'<domain: "a b\"c", overload: "# no comment", doc_string: "x">',
        },
        "% f (x) => (y) { y = Op(x) }",
    )
    yield from under(
        "function/header/repeated",
        {
            "domain": '<domain: "a", domain: "b">',
            "overload": '<overload: "a", overload: "b">',
            "doc": '<doc_string: "a", doc_string: "b">',
            "opset": '<opset_import: ["": 1], opset_import: ["d": 2]>',
        },
        "% f (x) => (y) { y = Op(x) }",
    )
    yield from under(
        "function/header/broken",
        {
            "empty": "<>",
            "ir-version": "<ir_version: 9>",
            "producer": '<producer_name: "p">',
            "model-version": "<model_version: 1>",
            "unknown": '<name: "f">',
            "capitals": '<DOMAIN: "d">',
            "without-colon": '<domain "d">',
            "equals": '<domain = "d">',
            "domain-is-a-name": "<domain: d>",
            "domain-is-a-number": "<domain: 1>",
            "no-value": "<domain:>",
            "trailing-comma": '<domain: "d",>',
            "no-comma": '<domain: "d" overload: "o">',
            "unclosed": '<domain: "d"',
            "opset-without-brackets": '<opset_import: "": 1>',
            "opset-without-domain": "<opset_import: [1]>",
            "opset-without-version": '<opset_import: [""]>',
            "opset-with-name": "<opset_import: [d: 1]>",
            "opset-trailing-comma": '<opset_import: ["": 1,]>',
            "two-headers": '<domain: "a"> <domain: "b">',
        },
        "% f (x) => (y) { y = Op(x) }",
    )
    yield from under(
        "function/attributes",
        {
            "one": "a",
            "two": "a, b",
            "no-blanks": "a,b",
            "same-name-twice": "a, a",
            "type-word": "float, seq",
            "int": "a: int = 3",
            "float": "a: float = 4.0",
            "float-from-int": "a: float = 4",
            "string": 'a: string = "s"',
            "tensor": "a: tensor = float[2] {1, 2}",
            "graph": "a: graph = g () => () {}",
            "type": "a: type_proto = seq(float)",
            "ints": "a: ints = [1, 2]",
            "floats": "a: floats = [1, 2.5]",
            "strings": 'a: strings = ["x", "y"]',
            "empty-ints": "a: ints = []",
            "empty-tensors": "a: tensors = []",
            "bare-int": "a = 3",
            "bare-float": "a = 3.5",
            "bare-string": 'a = "s"',
            "bare-list": "a = [1, 2]",
            "bare-tensor": "a = int64 {1}",
            "bare-type": "a = float[N]",
            "bare-graph": "a = g => () {}",
            "mixed": 'a, b: int = 1, c, d = 2.0, "e f", "g h" = "s"',
            "reference": "a: int = @b",
            "reference-bare": "a = @b",
            "quoted-with-annotation": '"a b": ints = [1]',
        },
        "f <%> (x) => (y) {}",
    )
    yield from under(
        "function/attributes/broken",
        {
            "empty": "",
            "leading-comma": ", a",
            "trailing-comma": "a,",
            "two-commas": "a,, b",
            "no-comma": "a b",
            "number": "1",
            "empty-list-bare": "a = []",
            "empty-list-singular": "a: int = []",
            "mixed-list": "a = [1, 2.0]",
            "unknown-annotation": "a: integer = 1",
            "two-values": "a = 1 2",
            "unclosed-string": 'a = "x',
        },
        "f <%> (x) => (y) {}",
    )
    yield from under(
        "function/info",
        {
            "empty": "<>",
            "blank": "< >",
            "one": "<float[N] t>",
            "several": "<float t, seq(int64) s, opaque() o>",
            "untyped": "<t>",
            "quoted": '<float "t 1">',
            "none": "",
        },
        "f (float x, z) => (int64 y) % { y = Op(x) }",
    )
    yield from under(
        "function/info/broken",
        {
            "initializer": "<float w = {1}>",
            "trailing-comma": "<float t,>",
            "type-only": "<float>",
            "two-blocks": "<float t> <float u>",
            "unclosed": "<float t",
        },
        "f (x) => (y) % {}",
    )
    yield "function/all-parts", (
        '<domain: "d", opset_import: ["": 20, "d": 1], overload: "o", doc_string: "s">\n'
        "f <a, b: float = 2, c = [1, 2]> (float[N] x, y) => (float[N] z, w) <float[N] t, seq(float) s>\n"
        "{\n  [one] t = Mul<k: float = @b>(x, y)\n  z, w = d.g:o(t, )\n}\n"
    )


# Models


def models() -> Cases:
    entries = {
        "ir-version": "ir_version: 9",
        "opset": 'opset_import: ["": 21]',
        "producer-name": 'producer_name: "maker"',
        "producer-version": 'producer_version: "1.2"',
        "domain": 'domain: "com.acme"',
        "model-version": "model_version: 3",
        "doc": 'doc_string: "some words"',
        "metadata": 'metadata_props: ["k": "v", "k": "w", "": ""]',
    }
    yield from under("model/header", entries, "<%> g () => () {}")
    texts = list(entries.values())
    yield "model/header/all", f"<{', '.join(texts)}> g () => () {{}}"
    yield "model/header/all-reversed", f"<{', '.join(reversed(texts))}> g () => () {{}}"
    for turn in range(1, len(texts)):
        yield f"model/header/all-turned-by-{turn}", f"<{', '.join(texts[turn:] + texts[:turn])}> g () => () {{}}"
    repeated = {
        "ir-version": "ir_version: 1, ir_version: 2",
        "opset": 'opset_import: ["a": 1], opset_import: ["b": 2]',
        "opset-and-empty": 'opset_import: ["a": 1], opset_import: []',
        "producer-name": 'producer_name: "a", producer_name: "b"',
        "producer-version": 'producer_version: "a", producer_version: "b"',
        "domain": 'domain: "a", domain: ""',
        "model-version": "model_version: 1, model_version: 2",
        "doc": 'doc_string: "a", doc_string: "b"',
        "metadata": 'metadata_props: ["a": "1"], metadata_props: ["b": "2"]',
    }
    yield from under("model/header/repeated", repeated, "<%> g () => () {}")
    yield from under(
        "model/header/value",
        {
            "ir-version-zero": "ir_version: 0",
            "ir-version-negative": "ir_version: -1",
            "opset-empty": "opset_import: []",
            "opset-same-domain-twice": 'opset_import: ["": 1, "": 2]',
            "opset-negative": 'opset_import: ["": -5]',
            "opset-several": 'opset_import: ["": 21, "ai.onnx.ml": 5, "local": 1]',
            "metadata-empty": "metadata_props: []",
            "metadata-one": 'metadata_props: ["a": "b"]',
            "strings-empty": 'producer_name: "", producer_version: "", domain: "", doc_string: ""',
            "no-blanks": 'ir_version:9,opset_import:["":21]',
        },
        "<%> g () => () {}",
    )
    yield from under(
        "model/frame",
        {
            "only-graph": "g () => () {}",
            "graph-without-inputs": "g => () {}",
            "one-function": "g () => () {} f () => () {}",
            "function-after-graph-without-blank": "g () => () {}f () => () {}",
            "two-functions": "g () => () {} f (x) => (y) { y = A(x) } h (x) => (y) { y = B(x) }",
            "function-with-header": '<ir_version: 9> g () => () {} <domain: "d"> f () => () {}',
            "functions-with-and-without-header": 'g () => () {} f () => () {} <domain: "d"> f () => () {} h () => () {}',
            "same-function-twice": "g () => () {} f () => () {} f () => () {}",
            "quoted-function": 'g () => () {} "f 1" () => () {}',
            "type-words-as-names": "float () => () {} seq () => () {}",
        },
    )
    yield "model/all-parts", (
        "<\n"
        "  ir_version: 10,\n"
        '  opset_import: ["": 21, "local": 1],\n'
        '  producer_name: "hand",\n'
        '  metadata_props: ["origin": "notes"]\n'
        ">\n"
        "# Scales and adds; the weights lie beside the model.\n"
        'mixer (float[N, 4] "in/0", float[4] scale = {1, 1, 1, 1}) => (float[N, 4] out) <\n'
        '  float[4, 4] weights = ["location": "w.bin", "offset": "128"],\n'
        "  float[N, 4] product,\n"
        "  int64[2] axes = {0, -1}\n"
        "> {\n"
        '  [product] product = MatMul("in/0", weights)\n'
        "  scaled = local.times<factor: float = 2>(product, scale)\n"
        "  out = If(flag) <\n"
        "    then_branch = t () => (float[N, 4] a) { a = Identity(scaled) },\n"
        "    else_branch = e () => (float[N, 4] b) <float z = {0}> { b = Mul(scaled, z) }\n"
        "  >\n"
        "}\n"
        '<domain: "local", opset_import: ["": 21]>\n'
        "times <factor: float = 1.5, unused> (x, s) => (y) {\n"
        "  f = Constant<value_float: float = @factor>()\n"
        "  t = Mul(x, f)\n"
        "  y = Mul(t, s)\n"
        "}\n"
    )


# Texts whose end the reference does not read: only a model is read to its end.


def left_unread() -> Cases:
    rests = {
        "name": "word",
        "bracket": ")",
        "brace": "}",
        "number": "1",
        "quotes-unclosed": '"',
        "comma": ",",
        "sharp-then-line": "# comment\nword",
    }
    yield from under("node/rest", {**rests, "node": "z = Op(y)", "attributes": "<a = 1>"}, "y = Op<k = 1>(x) %")
    yield from under("graph/rest", {**rests, "graph": "h () => () {}", "function": "f (x) => (y) {}"}, "g () => () {} %")
    yield from under("function/rest", {**rests, "function": "h () => () {}"}, "f () => () {} %")
    yield from under("model/rest", rests, "g () => () {} %")
    yield from under("model/rest-after-function", {**rests, "node": "y = Op(x)"}, "g () => () {} f () => () {} %")
    yield "node/rest/attributes-on-both-sides", "y = Op<k = 1>(x)<m = 2>"
    yield "node/rest/attributes-twice-after", "y = Op(x)<k = 1><m = 2>"
    # The binding hands the text over as a C string.
    yield "model/rest/zero-byte", "g () => () {} \0 anything"
    yield "model/rest/zero-byte-in-comment", "g () => () {} # \0\n anything"
    yield "node/rest/zero-byte-in-string", 'y = Op<a = "\0">(x)'


# What the reference takes although it drops or changes a part.


def taken_by_mistake() -> Cases:
    yield from under(
        "node/mistake",
        {
            "no-callee": "y = (x)",
            "no-callee-with-attributes": "y = <a = 1>(x)",
            "no-callee-with-overload": "y = :v(x)",
            "callee-starts-with-dot": "y = .Op(x)",
            "callee-starts-with-dot-and-domain": "y = .acme.Op(x)",
            "callee-starts-with-dot-and-dotted-domain": "y = .com.acme.Op(x)",
        },
    )
    yield from under(
        "node/mistake/list",
        {
            "tensors": "a = [float {1}, float {2}]",
            "tensors-annotated": "a: tensors = [float {1}, float {2}]",
            "graphs": "a = [g () => () {}]",
            "graphs-annotated": "a: graphs = [g () => () {}, h => () {}]",
            "types": "a = [float, seq(float)]",
            "types-annotated": "a: type_protos = [float, seq(float)]",
            "tensors-under-singular": "a: tensor = [float {1}]",
            "graphs-under-singular": "a: graph = [g () => () {}]",
            "types-under-singular": "a: type_proto = [float]",
            "ints-under-singular": "a: int = [1, 2]",
            "floats-under-singular": "a: float = [1, 2]",
            "strings-under-singular": 'a: string = ["a"]',
            "references": "a = [@b, @c]",
            "reference-then-int": "a = [@b, 1]",
            "tensor-then-int": "a = [float {1}, 1]",
            "graph-then-string": 'a = [g => () {}, "s"]',
            "tensor-then-type": "a = [float {1}, float]",
        },
        ATTRIBUTE,
    )
    yield from under(
        "function/mistake/default",
        {
            "float-under-int": "a: int = 2.0",
            "string-under-int": 'a: int = "s"',
            "int-under-string": "a: string = 1",
            "int-under-tensor": "a: tensor = 5",
            "int-under-ints": "a: ints = 5",
            "type-under-int": "a: int = float",
            "tensor-with-symbol": "a = float[N] w",
            "tensor-of-any-rank": "a = float[] w",
            "sequence-with-name": "a = seq(float) w",
            "no-value": "a =",
            "no-value-annotated": "a: int =",
            "only-annotation": "a: int",
            "only-colon": "a:",
            "reference-without-name": "a: int = @",
            "then-another": "a: int = 2.0, b",
            "unclosed-list": "a = [1",
            "unclosed-list-then-another": "a = [1, b",
            "types-annotated": "a: type_protos = [float]",
            "tensors-annotated": "a: tensors = [float {1}]",
            "ints-under-singular": "a: int = [1]",
        },
        "f <%> (x) => (y) {}",
    )
    # What the notation adds to the reference's.
    yield from under(
        "node/extension",
        {
            "quoted-callee": 'y = "Op 1"(x)',
            "quoted-domain": 'y = "com.acme-x".Op(x)',
            "quoted-overload": 'y = Op:"v 1"(x)',
            "quoted-attribute": 'y = Op<"odd name" = 1>(x)',
            "quoted-tensor-name": 'y = Op<a = float[1] "w 1" {1}>(x)',
            "quoted-tensor-name-and-equals": 'y = Op<a = float[1] "w 1" = {1}>(x)',
            "quoted-graph-name": 'y = Op<a = "g 1" () => () {}>(x)',
        },
    )
    yield "graph/extension/quoted-opaque", 'g (opaque("a b") x) => () {}'
    yield "function/extension/metadata", '<metadata_props: ["k": "v"]> f () => () {}'


# Broken texts; some more stand beside the groups above.


def broken_nodes() -> Cases:
    yield from under(
        "node/broken",
        {
            "nothing": "",
            "blank": " \n\t",
            "comment": "# y = Op(x)",
            "only-name": "y",
            "only-equals": "=",
            "no-equals": "Op(x)",
            "typed-result": "float y = Op(x)",
            "two-results-without-comma": "y z = Op(x)",
            "arrow": "y => Op(x)",
            "colon-equals": "y := Op(x)",
            "number-result": "1 = Op(x)",
            "block": "{ y = Op(x) }",
            "attributes-unclosed": "y = Op<a = 1(x)",
            "attributes-in-square-brackets": "y = Op[a = 1](x)",
            "attributes-empty": "y = Op<>(x)",
            "attributes-empty-after-unread": "y = Op(x) <>",
            "attributes-unclosed-after": "y = Op(x) <a = 1",
            "operands-in-braces": "y = Op{x}",
            "quotes-unclosed": 'y = Op("x)',
            "quotes-unclosed-by-escape": 'y = Op("x\\")',
            "not-ascii-name": "y = Op(größe)",
            "dollar": "y = Op($x)",
            "percent": "%y = Op(%x)",
            "question-mark": "y = Op(?)",
            "model": "<ir_version: 9> g () => () {}",
            "graph": "g () => () {}",
            "emoji": "🦀",
        },
    )


def broken_graphs() -> Cases:
    yield from under(
        "graph/broken",
        {
            "nothing": "",
            "blank": "  ",
            "only-name": "g",
            "no-name": "() => () {}",
            "no-arrow": "g () () {}",
            "arrow-with-blank": "g () = > () {}",
            "arrow-with-comment": "g () =# c\n> () {}",
            "arrow-with-minus": "g () -> () {}",
            "arrow-reversed": "g () <= () {}",
            "no-outputs": "g () => {}",
            "no-nodes": "g () => ()",
            "inputs-unclosed": "g (x => () {}",
            "inputs-leading-comma": "g (, x) => () {}",
            "inputs-trailing-comma": "g (x,) => () {}",
            "inputs-two-commas": "g (x,, y) => () {}",
            "inputs-without-comma": "g (x y) => () {}",
            "inputs-semicolon": "g (x; y) => () {}",
            "inputs-in-square-brackets": "g [x] => () {}",
            "inputs-in-angle-brackets": "g <x> => () {}",
            "outputs-trailing-comma": "g () => (y,) {}",
            "outputs-only-comma": "g () => (,) {}",
            "outputs-without-brackets": "g () => y {}",
            "dotted-name": "a.g () => () {}",
            "two-names": "g h () => () {}",
            "number-name": "1 () => () {}",
            "labelled": "[g] () => () {}",
            "header": "<ir_version: 9> g () => () {}",
            "nodes-in-brackets": "g () => () ()",
            "nodes-unclosed": "g () => () {",
            "node": "y = Op(x)",
            "two-input-lists": "g (x) (y) => () {}",
            "two-output-lists": "g () => (x) (y) {}",
        },
    )


def broken_functions() -> Cases:
    yield from under(
        "function/broken",
        {
            "nothing": "",
            "only-name": "f",
            "no-name": "(x) => (y) {}",
            "no-inputs": "f => (y) {}",
            "no-outputs": "f (x) => {}",
            "no-arrow": "f (x) (y) {}",
            "arrow-with-blank": "f (x) = > (y) {}",
            "no-nodes": "f (x) => (y)",
            "only-header": '<domain: "d">',
            "header-after-name": 'f <domain: "d"> (x) => (y) {}',
            "attributes-before-name": "<a> f (x) => (y) {}",
            "attributes-after-inputs": "f (x) <a> => (y) {}",
            "default-of-parameter": "f (float x = {1}) => (y) {}",
            "inputs-trailing-comma": "f (x,) => (y) {}",
            "inputs-gap": "f (x,,z) => (y) {}",
            "outputs-trailing-comma": "f (x) => (y,) {}",
            "dotted-name": "d.f (x) => (y) {}",
            "overload-after-name": "f:v (x) => (y) {}",
            "number-parameter": "f (1) => (y) {}",
            "node": "y = Op(x)",
            "nodes-unclosed": "f (x) => (y) { y = Op(x)",
            "node-broken": "f (x) => (y) { y = }",
        },
    )


def broken_models() -> Cases:
    yield from under(
        "model/broken",
        {
            "nothing": "",
            "blank": "\n\n",
            "only-header": "<ir_version: 9>",
            "header-empty": "<> g () => () {}",
            "header-unclosed": "<ir_version: 9 g () => () {}",
            "header-twice": "<ir_version: 9> <model_version: 1> g () => () {}",
            "header-after-graph": "g () => () {} <ir_version: 9>",
            "header-after-name": "g <ir_version: 9> () => () {}",
            "header-trailing-comma": "<ir_version: 9,> g () => () {}",
            "header-leading-comma": "<, ir_version: 9> g () => () {}",
            "header-no-comma": "<ir_version: 9 model_version: 1> g () => () {}",
            "header-semicolon": "<ir_version: 9; model_version: 1> g () => () {}",
            "header-equals": "<ir_version = 9> g () => () {}",
            "header-no-colon": "<ir_version 9> g () => () {}",
            "header-no-value": "<ir_version:> g () => () {}",
            "header-unknown-key": "<graph: 1> g () => () {}",
            "header-overload": '<overload: "v"> g () => () {}',
            "header-type-word": "<seq: 1> g () => () {}",
            "header-key-in-capitals": "<IR_VERSION: 9> g () => () {}",
            "header-key-quoted": '<"ir_version": 9> g () => () {}',
            "header-ir-version-quoted": '<ir_version: "9"> g () => () {}',
            "header-producer-without-quotes": "<producer_name: p> g () => () {}",
            "header-producer-number": "<producer_version: 1.0> g () => () {}",
            "header-metadata-without-brackets": '<metadata_props: "a": "b"> g () => () {}',
            "header-metadata-trailing-comma": '<metadata_props: ["a": "b",]> g () => () {}',
            "header-metadata-only-comma": "<metadata_props: [,]> g () => () {}",
            "header-metadata-number": '<metadata_props: ["a": 1]> g () => () {}',
            "header-metadata-bare": "<metadata_props: [a: b]> g () => () {}",
            "header-opset-only-version": "<opset_import: [10]> g () => () {}",
            "header-opset-only-domain": '<opset_import: [""]> g () => () {}',
            "header-opset-bare-domain": "<opset_import: [ai: 1]> g () => () {}",
            "header-opset-trailing-comma": '<opset_import: ["": 1,]> g () => () {}',
            "header-opset-in-braces": '<opset_import: {"": 1}> g () => () {}',
            "header-opset-float": '<opset_import: ["": 1.0]> g () => () {}',
            "header-square-brackets": "[ir_version: 9] g () => () {}",
            "two-graphs-first-broken": "g () => () { f () => () {}",
            "only-function-with-domain": '<domain: "d", overload: "o"> f () => () {}',
            "function-without-inputs": "g () => () {} f => () {}",
            "function-broken": "g () => () {} f (x) => (y) { y = Op(x }",
            "semicolon-between": "g () => () {}; f () => () {}",
            "onnx-bytes": "\x08\x07\x12\x01",
            "json": '{"irVersion": "9"}',
            "protobuf-text": "ir_version: 9",
            "node": "y = Op(x)",
        },
    )


# Nesting, and nesting so deep that a parser that calls itself runs out of stack.


def deep() -> Cases:
    yield "graph/deep/sequences", f"g ({'seq(' * 20}float{')' * 20} x) => () {{}}"
    yield "graph/deep/optionals-of-maps", f"g ({'optional(map(int64, ' * 10}float{'))' * 10} x) => () {{}}"
    yield "node/deep/subgraphs", "y = A<g = " + "h () => (y) { y = A<g = " * 10 + "h => () {}" + ">() }" * 10 + ">()"
    yield "node/deep/sequences-as-value", f"y = Op<a = {'seq(' * 20}float{')' * 20}>()"
    far = 200_000
    yield "graph/too-deep/sequences", f"g ({'seq(' * far}float{')' * far} x) => () {{}}"
    yield "graph/too-deep/sequences-unclosed", f"g ({'optional(' * far}"
    yield "node/too-deep/sequences-as-value", f"y = Op<a = {'seq(' * far}float{')' * far}>()"
    yield "node/too-deep/subgraphs", "y = A<g = h => () { " * 40_000 + "}>()" * 40_000
    yield "model/too-deep/subgraphs-unclosed", "g () => () { " + "y = A<g = h => () { " * 40_000
    yield "node/too-deep/lists", "y = Op<a = " + "[" * far + "]" * far + ">()"
