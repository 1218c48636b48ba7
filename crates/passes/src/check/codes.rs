//! What a check can find: every code once, with its level, the requirement behind it, advice, and
//! what it means.

use crate::finding::{Code, Reference, Severity};

/// Levels as the table says them. `Pedantic` is only said under `strict`.
macro_rules! level {
    (Error) => {
        Some(Severity::Error)
    };
    (Warning) => {
        Some(Severity::Warning)
    };
    (Note) => {
        Some(Severity::Note)
    };
    (Pedantic) => {
        None
    };
}

/// A table of codes: constant, level, whether the checker of the `onnx` package refuses a model for
/// it too (`shared`), only with a full check (`full`) or not at all (`own`), name, requirement,
/// advice; then what it means.
macro_rules! codes {
    ($( $constant:ident $level:ident $reference:ident $name:literal $requirement:literal $help:literal $about:literal; )*) => {
        $( #[doc = $about] pub static $constant: Code = Code {
            name: $name,
            severity: level!($level),
            requirement: $requirement,
            help: $help,
            about: $about,
            reference: codes!(@reference $reference),
        }; )*

        /// Every code of the checker, in the order of the table.
        pub static CODES: &[&Code] = &[$( &$constant, )*];
    };
    (@reference shared) => { Reference::Refuses };
    (@reference full) => { Reference::RefusesInFull };
    (@reference own) => { Reference::Accepts };
}

codes! {
    // The model.
    NO_IR_VERSION Error shared "no-ir-version" "MODEL-02"
        "set ir_version to that of the format which the model was written for"
        "A model says in `ir_version` which version of the file format it follows; many rules depend on it. Without it the meaning of the rest is not defined. An empty file has none either: was the download or the export interrupted?";
    NEWER_IR_VERSION Error shared "newer-ir-version" "MODEL-03"
        "update the tool that reads it, or export the model for an older version of the format"
        "The model was written for a version of the file format that is not known here. It may hold fields with a meaning that would be overlooked.";
    IR_VERSION_TOO_OLD Warning own "ir-version-too-old" "VER-23"
        "raise ir_version to the version named"
        "The model uses something that its version of the file format does not have yet: an element type, a section, a field. Readers that go by the version may overlook it or refuse it.";
    OPSET_NEEDS_NEWER_IR Note own "opset-needs-newer-ir" "VER-19"
        "raise ir_version to the version named, unless an old reader must read the model"
        "Each release of the standard pairs operator sets with a version of the file format. An operator set that is newer than the format of the model is read by most tools, but no release ever had that combination.";
    NO_GRAPH Error shared "no-graph" "MODEL-11"
        "the file is empty, or is not a model"
        "A model is its graph: what is to be computed. Without one there is nothing to check or to run.";
    NO_OPSET_IMPORT Error shared "no-opset-import" "MODEL-26"
        "add an opset_import entry with the operator set and its version"
        "Since version 3 of the format a model says which operator sets it uses, each with a version. Without that the operators have no meaning: most of them changed over time.";
    OPSET_IMPORT_TOO_EARLY Error shared "opset-import-too-early" "MODEL-26"
        "raise ir_version to 3 or more, or remove opset_import"
        "Before version 3 of the format a model could not name operator sets; version 1 of `ai.onnx` was meant. A model of that time with imports contradicts itself.";
    OPSET_OUT_OF_RANGE Error shared "opset-out-of-range" "OPSET-30"
        "versions of operator sets are small numbers, such as 21"
        "The version of an operator set must fit into 32 bits. A larger number is a mistake, or an attempt to overflow a counter.";
    OPSET_WITHOUT_VERSION Error own "opset-without-version" "OPSET-01"
        "say which version; versions count from 1"
        "An imported operator set has no version, or one below 1. No operator exists at that version, so the entry says nothing.";
    NEWER_OPSET Warning own "newer-opset" "VER-14"
        "update the tool that reads it, or convert the model to an older version of the operator set"
        "The model uses a version of an operator set that is not known here. Its operators are taken to be those of the newest known version, which may be wrong.";
    DUPLICATE_OPSET_IMPORT Warning own "duplicate-opset-import" "OPSET-28"
        "keep one entry for each operator set"
        "The same operator set is imported more than once. Readers disagree whether the last entry counts or the one with the highest version.";
    BAD_OPSET_DOMAIN Pedantic own "bad-opset-domain" "OPSET-06"
        "name it like a package, such as com.example.ops"
        "Names of operator sets other than the standard's should follow reverse DNS, so that those of two organisations cannot be the same.";
    NO_DOMAIN Note own "no-domain" "MODEL-07"
        "set domain to a name in reverse DNS, such as com.example"
        "A model may say to which organisation it belongs. The standard asked for it until release 1.20 and recommends it since; hardly any tool needs it.";
    BAD_DOMAIN Warning own "bad-domain" "MODEL-08"
        "name it in reverse DNS, such as com.example"
        "The domain of a model names who made it, like a package in Java: words of letters, digits, `_` and `-`, with dots between.";
    NO_PRODUCER Note own "no-producer" "MODEL-06"
        "set producer_name and producer_version"
        "A model should say which tool made it, and in which version. Who has to find out why a model behaves oddly will look for that first.";
    DUPLICATE_METADATA Error shared "duplicate-metadata" "META-01"
        "keep one entry for each key"
        "Two entries of the model's metadata have the same key. Readers disagree which one counts.";
    DUPLICATE_METADATA_BELOW Warning own "duplicate-metadata-below" "META-08"
        "keep one entry for each key"
        "Two entries of one list of keys and values have the same key. Readers disagree which one counts.";
    UNQUALIFIED_METADATA Pedantic own "unqualified-metadata" "META-05"
        "put a name in reverse DNS before the key, such as com.example.key"
        "Keys of metadata without a prefix are reserved for later versions of the standard. One of them may get a meaning that you did not intend.";
    IMAGE_METADATA Warning own "image-metadata" "META-10"
        "use one of the values that the standard lists"
        "The metadata says how the pixels of the model's images are stored, but not in words of the standard. A tool that prepares images by it will do the wrong thing or nothing.";
    INVALID_UTF8 Warning own "invalid-utf8" "WIRE-35"
        "write the text as UTF-8"
        "Texts of the format are UTF-8. Readers refuse other bytes, or each replaces them in its own way, so that two different names may become one.";
    MARKUP_IN_DOCUMENTATION Warning own "markup-in-documentation" "GRAPH-27"
        "write Markdown instead"
        "Documentation strings may be Markdown. HTML and other markup do not belong there: tools that show them on a page would have to guard against it.";

    // Graphs.
    GRAPH_WITHOUT_NAME Error shared "graph-without-name" "GRAPH-01"
        "give the graph a name"
        "Every graph has a name that is not empty, also those inside of nodes.";
    NAMELESS_VALUE Error shared "nameless-value" "NAME-13"
        "give it a name"
        "Inputs and outputs of graphs have names that are not empty: nodes and callers refer to them by name. The empty name means that an operand is left out.";
    DUPLICATE_INPUT Error shared "duplicate-input" "GRAPH-38"
        "rename one of them"
        "Two inputs of one graph have the same name, so it is not defined which one is meant.";
    UNTYPED_VALUE Error shared "untyped-value" "GRAPH-14"
        "give it a type with an element type, such as float[N, 3]"
        "Inputs and outputs of the main graph say what they are: a caller must know what to pass in and what comes out.";
    SHAPELESS_VALUE Error shared "shapeless-value" "GRAPH-15"
        "give it a shape; dimensions may be names or left open"
        "Tensors that go into the model or come out of it say at least how many dimensions they have. A shape of no dimensions is a scalar; an absent shape may be anything.";
    UNKNOWN_ELEMENT_TYPE Error own "unknown-element-type" "TYPE-19"
        "use one of the element types of the standard"
        "A type names its element type by a number. This number is not that of an element type, or it is that of `undefined`.";
    INCOMPLETE_TYPE Error own "incomplete-type" "TYPE-20"
        "say what it consists of"
        "Sequences and optionals name the type of their elements, maps the types of keys and values, opaque types their name. Here that is missing.";
    BAD_KEY_TYPE Error own "bad-key-type" "TYPE-17"
        "use an integer type of 8 to 64 bits, or string"
        "Keys of a map are integers or strings.";
    NEGATIVE_DIMENSION Warning own "negative-dimension" "SHAPE-12"
        "leave the dimension open, or give it a name such as N"
        "A shape has a negative dimension. Old exporters wrote -1 where they meant that any size will do; readers disagree about it.";
    WILDCARD_DIMENSION Warning own "wildcard-dimension" "SHAPE-10"
        "leave the dimension open, without any text"
        "The name of a dimension is empty or `*`. Neither is a wildcard: an open dimension has no name at all.";
    BAD_DIMENSION_NAME Pedantic own "bad-dimension-name" "NAME-14"
        "use letters, digits and _"
        "The name of a dimension should be an identifier. Expressions such as `M + N` occur and are taken as names.";
    DUPLICATE_TYPE Warning own "duplicate-type" "GRAPH-24"
        "keep one entry for each value"
        "The types of values between nodes are a list with one entry for each name. With two entries readers disagree which one counts.";
    TYPE_OF_NOTHING Note own "type-of-nothing" "GRAPH-24"
        "remove the entry"
        "A type is declared for a value that does not exist in this graph, most often a leftover of an edit.";
    NAMELESS_INITIALIZER Error shared "nameless-initializer" "GRAPH-10"
        "give it the name of the value that it is"
        "A constant of a graph is referred to by its name; without one nothing can use it.";
    DUPLICATE_INITIALIZER Error shared "duplicate-initializer" "GRAPH-10"
        "rename one of them, or remove it"
        "Two constants of one graph, dense or sparse, have the same name. Readers disagree which one is meant.";
    INITIALIZER_NOT_INPUT Error shared "initializer-not-input" "GRAPH-08"
        "add it to the graph's inputs, or raise ir_version to 4 or more"
        "Before version 4 of the format every constant of a graph also stood among its inputs, as their default value. Readers of such files look for it there.";
    INITIALIZED_SUBGRAPH_INPUT Error own "initialized-subgraph-input" "GRAPH-20"
        "rename the constant"
        "In a graph inside of a node an input gets its value from that node, so it cannot also be a constant.";
    PASSED_CONSTANT_INPUT Error own "passed-constant-input" "GRAPH-21"
        "put inputs that are constants after those that the node passes in"
        "Up to version 3 of the format a constant of an inner graph also stands among its inputs, but after those that the node passes in, which are matched by position.";
    DUPLICATE_DEFINITION Error shared "duplicate-definition" "GRAPH-18"
        "rename one of them"
        "Each name belongs to one value: it is defined once, by an input, a constant or a node (an input may have a constant as its default value). With two definitions readers disagree which one is meant.";
    SHADOWED_VALUE Error shared "shadowed-value" "GRAPH-32"
        "rename the output of the inner graph"
        "A node in an inner graph gives its result a name that a graph around it uses as well. The inner graph sees the outer value under that name, so there would be two.";
    SHADOWED_NAME Warning own "shadowed-name" "GRAPH-32"
        "rename the one in the inner graph"
        "An input or a constant of an inner graph has the name of a value around it. The standard forbids that since release 1.19; older models have it, and tools that move nodes between graphs get it wrong.";
    UNDEFINED_VALUE Error shared "undefined-value" "NODE-01"
        "use the name of an input, of a constant or of a node's result; the empty name leaves an optional input out"
        "A node reads a value that nothing defines: no input, no constant and no node has that name.";
    USED_TOO_EARLY Error shared "used-too-early" "GRAPH-02"
        "move the node that makes the value before the one that reads it"
        "Nodes are listed in an order in which they can run: what a node reads is made before it. Readers that run the list as it is would find nothing there.";
    CYCLE Error shared "cycle" "GRAPH-03"
        "break the cycle: a result cannot depend on itself; use Loop or Scan for repetition"
        "Nodes wait for each other in a circle, so none of them can ever run.";
    OUTER_TOO_EARLY Error shared "outer-too-early" "GRAPH-33"
        "move the node that makes the value before the one that holds the inner graph"
        "An inner graph sees the values around it that exist when its node runs. This one is made later.";
    UNDEFINED_OUTPUT Error shared "undefined-output" "GRAPH-30"
        "name a result of the graph's own nodes, one of its inputs or constants; an outer value needs an Identity node"
        "An output of a graph is made by that graph itself. Nothing in it has that name.";
    EMPTY_NODE Error shared "empty-node" "GRAPH-05"
        "remove the node"
        "A node without inputs and outputs does nothing.";
    NODE_WITHOUT_OUTPUT Warning own "node-without-output" "GRAPH-05"
        "name its outputs, or remove it"
        "A node has one or more outputs. What this one computes is lost.";
    DUPLICATE_NODE_NAME Warning own "duplicate-node-name" "NAME-05"
        "rename one of them, or leave the names out"
        "Names of nodes are for people and tools; two of one name in a graph cannot be told apart in messages and profiles.";
    DUPLICATE_GRAPH_NAME Pedantic own "duplicate-graph-name" "NAME-06"
        "give each graph a name of its own"
        "Names of graphs should be different within a model. Exporters often use one name for all inner graphs; no tool depends on it.";
    NAME_NO_IDENTIFIER Pedantic own "name-no-identifier" "NAME-01"
        "use letters, digits and _, and begin with a letter or _"
        "Names should be identifiers of C. Exporters use `/`, `.` and `:` all the time and tools accept them; code generators may not.";
    UNUSED_NODE Note own "unused-node" "GRAPH-23"
        "remove it, or use what it makes"
        "Nothing that the graph gives back depends on this node. Running it is wasted work, or an output has been forgotten.";
    UNUSED_INITIALIZER Note own "unused-initializer" "GRAPH-09"
        "remove it"
        "No node reads this constant and no output gives it back. It only makes the file larger.";
    UNUSED_INPUT Note own "unused-input" "GRAPH-28"
        "remove it, unless callers rely on it"
        "No node reads this input. Callers must pass it all the same.";
    ANNOTATION_OF_NOTHING Warning own "annotation-of-nothing" "GRAPH-36"
        "name a tensor of the graph"
        "A quantization annotation ties a tensor to those that hold its scale and zero point. Here one of them does not exist.";
    UNKNOWN_ANNOTATION Note own "unknown-annotation" "GRAPH-36"
        "the standard has SCALE_TENSOR and ZERO_POINT_TENSOR"
        "The key of a quantization annotation is none of the standard's, so only the tool that wrote it knows what it means.";

    // Nodes.
    NODE_WITHOUT_OPERATOR Error shared "node-without-operator" "NODE-03"
        "set op_type"
        "A node does not say what it computes.";
    OPSET_NOT_IMPORTED Error shared "opset-not-imported" "NODE-04"
        "add the operator set to opset_import with its version"
        "A node uses an operator set that the model (or the function it stands in) does not import, so its version, and with it the meaning of the operator, is not known.";
    UNKNOWN_OPERATOR Error shared "unknown-operator" "OPSET-14"
        "check the spelling; operators of your own belong into a domain of their own"
        "The standard has no operator of that name in this domain, at no version.";
    UNKNOWN_PREVIEW_OPERATOR Error own "unknown-preview-operator" "NODE-24"
        "check the spelling; operators of your own belong into a domain of their own"
        "The preview domains of the standard have no operator of that name.";
    OPERATOR_NOT_YET Error shared "operator-not-yet" "VER-17"
        "import the version of the operator set that has it, or use an older operator"
        "The operator exists, but came into the standard after the version of the operator set that the model imports.";
    UNKNOWN_CUSTOM_OPERATOR Error shared "unknown-custom-operator" "OPSET-14"
        "register the operator, or bring it along as a function"
        "The operator is in a domain that is not the standard's and no definition of it is known. That is only an error if operators of custom domains are to be checked.";
    UNKNOWN_FUNCTION Warning own "unknown-function" "FUNC-03"
        "check the name, or add the function"
        "The model brings functions of this domain along, but not this one. Only a runtime with an operator of that name can run the node.";
    UNKNOWN_OVERLOAD Error own "unknown-overload" "NODE-07"
        "name one of the overloads of the function"
        "The node calls a function of the model by name and overload. The model has the function, but not in that overload.";
    EXPERIMENTAL_OPERATOR Warning own "experimental-operator" "OPSET-20"
        "replace it by other operators"
        "The operator was an experiment of the first releases that never became part of the standard, or the document of its operator set calls it experimental. What it does may change, and few runtimes have it.";
    DEPRECATED_OPERATOR Error shared "deprecated-operator" "OPSET-29"
        "use the operator that replaces it"
        "The operator was taken out of the standard with this version of the operator set.";
    INPUT_COUNT Error shared "input-count" "NODE-06"
        "compare with the operator's inputs"
        "The node has more or fewer inputs than the operator takes.";
    OUTPUT_COUNT Error shared "output-count" "NODE-06"
        "compare with the operator's outputs"
        "The node has more or fewer outputs than the operator gives.";
    MISSING_INPUT Error shared "missing-input" "NODE-15"
        "name the input; only optional ones can be left out"
        "An empty name leaves an input out. That is allowed for optional inputs only.";
    MISSING_OUTPUT Error shared "missing-output" "NODE-16"
        "name the output; only optional ones can be left out"
        "An empty name leaves an output out. That is allowed for optional outputs only.";
    UNKNOWN_ATTRIBUTE Error shared "unknown-attribute" "NODE-21"
        "remove it, or check its name"
        "The operator has no attribute of that name at this version. Who wrote the model expects something that no runtime will do. (Names that begin with two underscores are free.)";
    DUPLICATE_ATTRIBUTE Error shared "duplicate-attribute" "NAME-03"
        "keep one of them"
        "A node has two attributes of one name. Readers disagree which one counts.";
    MISSING_ATTRIBUTE Error shared "missing-attribute" "NODE-21"
        "add it"
        "The operator has an attribute that every node must set, as there is no default for it.";
    ATTRIBUTE_TYPE Error shared "attribute-type" "NODE-06"
        "give it a value of the type that the operator wants"
        "The attribute holds a value of another type than the operator wants.";
    INPUT_TYPE Error own "input-type" "NODE-06"
        "convert it with Cast, or use another operator"
        "The types of what the node reads are known, and the operator does not take them.";
    SUBGRAPH_INPUTS Error own "subgraph-inputs" "GRAPH-39"
        "give the inner graph as many inputs as its node passes in"
        "What a node passes into an inner graph is matched with the inputs of that graph by position. Their numbers differ.";
    SUBGRAPH_OUTPUTS Error own "subgraph-outputs" "GRAPH-39"
        "give the inner graph as many outputs as its node takes from it"
        "What an inner graph gives back is matched with the outputs of its node by position. Their numbers do not fit.";

    // Attributes.
    NAMELESS_ATTRIBUTE Error shared "nameless-attribute" "ATTR-01"
        "give it a name"
        "Attributes are matched by name; without one it is not known what the value is for.";
    UNTYPED_ATTRIBUTE Error shared "untyped-attribute" "ATTR-02"
        "set its type to that of its value"
        "Since version 2 of the format an attribute says of which type it is: only so can an empty list be told from a missing value.";
    UNKNOWN_ATTRIBUTE_TYPE Error shared "unknown-attribute-type" "ATTR-18"
        "use one of the types of the standard"
        "The type of an attribute is a number; this one is not that of a type.";
    SEVERAL_VALUES Error shared "several-values" "ATTR-03"
        "keep the one that the type names"
        "An attribute holds exactly one value. With several readers disagree which one counts.";
    VALUE_OF_OTHER_TYPE Error shared "value-of-other-type" "ATTR-03"
        "set the type to that of the value"
        "The attribute says that it is of one type and holds a value of another.";
    ATTRIBUTE_WITHOUT_VALUE Error shared "attribute-without-value" "ATTR-03"
        "give it a value, or remove it"
        "An attribute of this type must hold its value. Numbers, texts and lists may be absent, which means 0, empty text, empty list; tensors, graphs and types may not.";
    REFERENCE_OUTSIDE_FUNCTION Error own "reference-outside-function" "ATTR-11"
        "give the attribute a value"
        "An attribute can stand for one of the function around it. In a graph of the model there is no function, so it has no value.";
    REFERENCE_WITH_VALUE Error shared "reference-with-value" "ATTR-10"
        "remove the value or the reference"
        "An attribute that stands for one of the function around it has no value of its own. Readers disagree which of the two counts.";
    UNKNOWN_REFERENCE Error own "unknown-reference" "ATTR-10"
        "declare the attribute in the function, or name one that is declared"
        "An attribute stands for one of the function around it, but the function has none of that name.";
    REFERENCE_TYPE Error own "reference-type" "ATTR-17"
        "use the type that the function's attribute has"
        "An attribute stands for one of the function around it, but says that it is of another type.";
    ATTRIBUTE_TEXT_NOT_UTF8 Warning own "attribute-text-not-utf8" "ATTR-05"
        "write the text as UTF-8"
        "The text of an attribute is UTF-8. Other bytes are kept as they are, but readers disagree about them.";

    // Functions.
    NAMELESS_FUNCTION Error shared "nameless-function" "FUNC-19"
        "give it a name"
        "Nodes call a function by its name; without one nothing can.";
    FUNCTION_WITHOUT_DOMAIN Error shared "function-without-domain" "FUNC-19"
        "set its domain; it may be empty text"
        "A function says in which domain it is, even if that is the empty one.";
    DUPLICATE_FUNCTION Error shared "duplicate-function" "FUNC-02"
        "rename one of them, or give it an overload"
        "Two functions of the model have the same domain, name and overload. Readers disagree which one is meant. (Overloads exist since version 10 of the format.)";
    DUPLICATE_FUNCTION_INPUT Error shared "duplicate-function-input" "FUNC-18"
        "rename one of them"
        "Two inputs of a function have the same name.";
    DUPLICATE_FUNCTION_OUTPUT Error shared "duplicate-function-output" "FUNC-18"
        "remove one of them, or pass it through an Identity node"
        "Two outputs of a function have the same name.";
    DUPLICATE_FUNCTION_ATTRIBUTE Error shared "duplicate-function-attribute" "FUNC-07"
        "keep one of them"
        "A function names the same attribute twice.";
    ATTRIBUTE_WITH_AND_WITHOUT_DEFAULT Error own "attribute-with-and-without-default" "FUNC-07"
        "keep one of them"
        "A function lists its attributes with a default and those without in two lists. This one is in both, or twice among those with a default.";
    UNDEFINED_FUNCTION_OUTPUT Error own "undefined-function-output" "FUNC-31"
        "name a result of the function's nodes or one of its inputs"
        "An output of a function is made by one of its nodes or is one of its inputs. Nothing in it has that name, so a call of the function cannot be computed.";
    FUNCTION_OPSET_MISMATCH Error shared "function-opset-mismatch" "FUNC-16"
        "let the function import the version that the model imports"
        "A function imports another version of an operator set than the model, and an operator that it uses is not the same in both. Putting the body in place of the call would change the result.";
    RECURSIVE_FUNCTION Error shared "recursive-function" "FUNC-15"
        "break the circle: functions cannot call themselves; use Loop for repetition"
        "Functions of the model call each other in a circle. They are written in place of their calls, which would never end.";
    TOO_MANY_FUNCTIONS Error shared "too-many-functions" "FUNC-32"
        "remove functions that are not called"
        "The model has more functions than any exporter writes. Readers refuse it to protect themselves.";
    CALLS_TOO_DEEP Error shared "calls-too-deep" "FUNC-32"
        "put bodies in place of calls"
        "Functions call functions over more levels than any exporter writes. Readers refuse it to protect themselves.";
    CALL_ARGUMENTS Error own "call-arguments" "FUNC-23"
        "compare with the function's inputs and outputs"
        "A node calls a function with more inputs or outputs than the function has.";
    CALL_ATTRIBUTE Warning own "call-attribute" "FUNC-06"
        "remove it, or declare it in the function"
        "A node passes an attribute to a function that has none of that name. It has no effect.";

    // Stored tensors.
    NO_ELEMENT_TYPE Error shared "no-element-type" "TENSOR-09"
        "set data_type to one of the element types of the standard"
        "A stored tensor says of which type its elements are. Without that, or with a number that is not that of a type, its bytes mean nothing.";
    NEGATIVE_DIM Error shared "negative-dim" "TENSOR-33"
        "dimensions of a value are 0 or more"
        "A stored tensor has a fixed size, so none of its dimensions can be negative.";
    SIZE_OVERFLOW Error shared "size-overflow" "TENSOR-32"
        "correct the dimensions"
        "The dimensions of a stored tensor multiply to more elements than can be counted. A reader without a check would allocate too little.";
    SEGMENT Warning own "segment" "TENSOR-29"
        "store the tensor as a whole"
        "The tensor is a piece of a larger one, a feature of the first releases that no runtime supports.";
    NO_DATA Error shared "no-data" "TENSOR-11"
        "store its values"
        "The shape of a stored tensor asks for elements, but there are none.";
    DATA_OF_NOTHING Error shared "data-of-nothing" "TENSOR-04"
        "remove the values, or correct the dimensions"
        "A dimension of the stored tensor is 0, so it has no elements; but there are values.";
    TWO_PAYLOADS Error shared "two-payloads" "TENSOR-10"
        "keep one of them"
        "The values of a stored tensor stand in raw_data or in the list for their type. Both, or two lists, are there; readers disagree which one counts.";
    WRONG_LIST Error shared "wrong-list" "TENSOR-10"
        "store them in the list for their type, or in raw_data"
        "Each element type has its list in the format. The values of this tensor stand in another one.";
    STRINGS_IN_RAW Error shared "strings-in-raw-data" "TENSOR-23"
        "store them in string_data"
        "Texts have no fixed size and cannot be stored as raw bytes.";
    DATA_TOO_SHORT Error shared "data-too-short" "TENSOR-26"
        "store as many values as the shape asks for"
        "There are fewer values than the shape asks for. A reader without a check would read beyond the end.";
    PACKED_ENTRIES_MISSING Error own "packed-entries-missing" "TENSOR-15"
        "store one byte in each entry of int32_data: two elements of 4 bits, or four of 2 bits"
        "Elements of 4 and 2 bits lie in int32_data packed, one byte in each entry. Here are fewer entries than that takes, as if each held four bytes; readers disagree about the values.";
    SURPLUS Warning own "surplus-data" "TENSOR-26"
        "remove what is too much, or correct the dimensions"
        "There are more values than the shape asks for. Readers ignore the rest; most often the shape is wrong.";
    PADDING_BITS Error shared "padding-bits" "TENSOR-40"
        "set the unused bits of the last byte to zero"
        "6-bit floats are packed, four in three bytes. Bits of the last byte that belong to no element must be zero.";
    SIX_BIT_RANGE Error shared "six-bit-range" "TENSOR-41"
        "store each element in the lowest six bits of its entry"
        "An entry of int32_data holds one 6-bit float, a number from 0 to 63.";
    STRING_NOT_UTF8 Warning own "string-not-utf8" "TYPE-06"
        "write the texts as UTF-8"
        "Elements of a tensor of strings are UTF-8. Readers refuse other bytes or each replaces them in its own way.";
    UNKNOWN_DATA_LOCATION Warning own "unknown-data-location" "TENSOR-30"
        "use DEFAULT or EXTERNAL"
        "The number that says where the values of a tensor are is not one that the standard defines. They are taken to be in the model.";
    SPARSE_WITHOUT_VALUES Error shared "sparse-without-values" "TENSOR-34"
        "store its values"
        "A sparse tensor consists of values and of indices that say where they belong. The values are missing.";
    SPARSE_VALUES_RANK Error shared "sparse-values-rank" "TENSOR-34"
        "store the values as a list"
        "The values of a sparse tensor are a list, of one dimension.";
    SPARSE_DIMS Error shared "sparse-dims" "TENSOR-37"
        "correct the dimensions"
        "A sparse tensor has at least one dimension, and none of them is 0 or negative.";
    SPARSE_INDICES Error shared "sparse-indices" "TENSOR-35"
        "store one index, or one index for each dimension, for each value, as int64"
        "The indices of a sparse tensor are int64: either one number for each value, its position in the dense form, or one row of numbers for each value.";
    SPARSE_INDEX_RANGE Error shared "sparse-index-range" "TENSOR-37"
        "correct the indices or the dimensions"
        "An index of a sparse tensor lies outside of its dimensions.";
    SPARSE_INDEX_ORDER Error shared "sparse-index-order" "TENSOR-36"
        "sort values and indices, and remove duplicates"
        "The indices of a sparse tensor ascend, and none occurs twice.";
    SPARSE_WITHOUT_INDICES Error shared "sparse-without-indices" "TENSOR-38"
        "store where the values belong"
        "A sparse tensor has values but does not say where they belong.";

    // Values outside of the file.
    EXTERNAL_WITHOUT_LOCATION Error shared "external-without-location" "EXT-02"
        "add a location: the file beside the model that has the values"
        "The values of the tensor are outside of the model, but it does not say in which file.";
    EXTERNAL_AND_INLINE Error shared "external-and-inline" "EXT-03"
        "keep one of them"
        "The values of the tensor are said to be outside of the model, and there are some in it. Readers disagree which ones count.";
    EXTERNAL_STRINGS Error own "external-strings" "EXT-18"
        "store them in string_data"
        "Texts have no form in data files.";
    BAD_LOCATION Error shared "bad-location" "EXT-09"
        "name a file in the directory of the model, relative to it, without `..`"
        "The location of a data file leads out of the model's directory, or may do so on some system. A reader that follows it gives the model a file of yours.";
    BAD_RANGE Error own "bad-range" "EXT-07"
        "offset and length are numbers of bytes, in decimal digits"
        "Where the values lie in the data file is not said in numbers. Readers disagree about what is meant.";
    LENGTH_MISMATCH Error own "length-mismatch" "EXT-16"
        "correct the length, the dimensions or the element type"
        "The tensor names a number of bytes in its data file that does not fit its shape and element type.";
    UNKNOWN_EXTERNAL_KEY Warning own "unknown-external-key" "EXT-15"
        "the standard has location, offset, length and checksum"
        "An entry that says where values lie has a key that the standard does not have; readers ignore it.";
    DATA_FILE_MISSING Error shared "data-file-missing" "EXT-22"
        "put the data file beside the model, under the name that the model gives"
        "The values of a tensor are in a file that does not exist or cannot be opened, so the model is incomplete.";
    DATA_FILE_TOO_SHORT Error own "data-file-too-short" "EXT-14"
        "get the data file again: was the download interrupted?"
        "The values of a tensor lie beyond the end of its data file.";

    // Training.
    BINDING_TARGET Error own "binding-target" "TRAIN-03"
        "name an initializer of the graph or of the step"
        "Training assigns results to state variables, which are initializers of the graph or of the training step. This name is none.";
    BINDING_SOURCE Error own "binding-source" "TRAIN-04"
        "name an output of the graph that is evaluated"
        "Training assigns outputs of the initialization or of the training step to state variables. This name is no output.";
    DUPLICATE_BINDING Error own "duplicate-binding" "TRAIN-05"
        "assign each state variable once"
        "The same state variable is assigned twice in one step, so its value would depend on the order.";
    VARIABLE_BOUND_TWICE Warning own "variable-bound-twice" "TRAIN-08"
        "assign each state variable in one training step only"
        "Two training steps assign the same state variable. What it holds depends on which of them ran last.";
    INITIALIZATION_MISSING Error own "initialization-missing" "TRAIN-13"
        "add the initialization graph, or remove its bindings"
        "A training step binds outputs of an initialization graph, but has none.";
    INITIALIZATION_INPUT Error own "initialization-input" "TRAIN-18"
        "make it a constant"
        "The graph that gives state variables their first values takes no inputs, because there is nothing that could pass them.";
    TRAINING_NAME_CLASH Error own "training-name-clash" "TRAIN-16"
        "rename it in the training step"
        "A training step runs together with the main graph, so the two share their names. This one is defined in both.";
    BINDING_TYPE Error own "binding-type" "TRAIN-25"
        "assign a value of the variable's type and shape"
        "A state variable keeps its element type and shape; the value that is assigned to it has others.";

    // Devices.
    NAMELESS_CONFIGURATION Error own "nameless-configuration" "DIST-02"
        "give it a name"
        "Nodes refer to a device configuration by its name.";
    DEVICE_COUNT Error own "device-count" "DIST-03"
        "set num_devices to 1 or more"
        "A device configuration says how many devices there are.";
    DEVICE_NAMES Error own "device-names" "DIST-04"
        "name every device, or none"
        "A device configuration that names devices names as many as there are.";
    DUPLICATE_CONFIGURATION Error own "duplicate-configuration" "DIST-35"
        "rename one of them"
        "Two device configurations have the same name, or a node refers to one twice.";
    UNKNOWN_CONFIGURATION Error own "unknown-configuration" "DIST-05"
        "name one of the model's configurations"
        "A node is placed on devices of a configuration that the model does not have.";
    SHARDED_TENSOR Error own "sharded-tensor" "DIST-08"
        "name an input or output of the node"
        "A sharding says how one input or output of its node is spread over devices. This name is none.";
    UNKNOWN_DEVICE Error own "unknown-device" "DIST-09"
        "devices count from 0 to num_devices - 1; groups of devices have an entry in index_to_device_group_map"
        "A tensor is placed on a device that the configuration does not have.";
    SHARDED_AXIS Error own "sharded-axis" "DIST-12"
        "name an axis of the tensor; negative ones count from the back"
        "A sharding splits the axes of a tensor. This axis is missing, does not exist, or is named twice.";
    SHARD_COUNT Error own "shard-count" "DIST-15"
        "set num_shards to 1 or more"
        "A sharding says into how many pieces an axis is split.";

    // Documents of operator sets.
    BAD_MAGIC Error own "bad-magic" "OPSET-10"
        "set magic to ONNXOPSET, unless the file is something else"
        "The document of an operator set begins with the text ONNXOPSET, by which programs recognise it.";
    SET_WITHOUT_DOMAIN Error own "set-without-domain" "OPSET-05"
        "set its domain to a name in reverse DNS, such as com.example.ops"
        "An operator set that is not the standard's says in which domain its operators are. The empty domain is that of the standard.";
    SET_WITHOUT_VERSION Error own "set-without-version" "OPSET-04"
        "set opset_version; versions count from 1"
        "Models import an operator set in a version. This document does not say which version it is.";
    DECLARED_WITHOUT_NAME Error own "declared-without-name" "OPSET-15"
        "give it a name"
        "An operator of a set has no name, so no node can call it.";
    DECLARED_TWICE Error own "declared-twice" "OPSET-21"
        "keep one of them"
        "An operator set declares the same operator twice for the same version. Functions count as operators of it.";
    DECLARED_TOO_LATE Error own "declared-too-late" "OPSET-21"
        "set since_version to the version of the set that brought it, or raise opset_version"
        "An operator says since which version of its set it exists. That cannot be later than the version of the set.";
    UNKNOWN_STATUS Warning own "unknown-status" "OPSET-19"
        "use EXPERIMENTAL or STABLE"
        "The status of an operator is a number; this one is not that of a status.";

    // Stored values.
    VALUE_OF_OTHER_KIND Error own "value-of-other-kind" "TYPE-26"
        "set elem_type to what is stored, and store nothing else"
        "A stored sequence or optional says whether it holds tensors, sequences, maps or something else, and fills the field for that. Here another one is filled.";
    MIXED_VALUES Error own "mixed-values" "TYPE-29"
        "convert them to one type"
        "The elements of a sequence, and the values of a map, are of one type.";
    STORED_KEYS Error own "stored-keys" "TYPE-27"
        "store one key for each value, in keys if they are integers, in string_keys if they are texts"
        "A stored map has as many keys as values. Its keys are integers or texts, as its key type says, and stand in the list for these.";

    // Said by other jobs.
    TYPES_CONTRADICT Error full "types-contradict" "SHAPE-17"
        "compare the types of its inputs"
        "The types and shapes of what a node reads contradict each other, or what the operator demands.";
    DENOTATION_MISMATCH Warning own "denotation-mismatch" "SHAPE-14"
        "transpose the input, or correct the denotations of its dimensions"
        "Dimensions can be denoted: `DATA_BATCH`, `DATA_CHANNEL`, `DATA_FEATURE` and others say what they mean. Operators over images, such as Conv and AveragePool, expect batch, channel and features in this order, and filters in an order of theirs. The denotations of what a node reads, as the file declares them or as they follow from other declarations, say that its dimensions are in another order. It runs, but probably computes something else than was meant.";
    TOO_MUCH_TO_INFER Warning own "too-much-to-infer" "SHAPE-15"
        "inline the functions, or leave types and shapes out"
        "Functions that call functions, or loops within loops, would have to be walked through more often than is reasonable. Types and shapes of what follows are not known.";
    RANK_ABOVE_LIMIT Warning own "rank-above-limit" "SHAPE-15"
        "reshape it: 64 dimensions of size 2 already have more elements than fit into memory"
        "A tensor here has at most 64 dimensions, as in NumPy. The standard sets no limit, but work and memory would not be bounded without one. The shape of this value is taken to be unknown; a session of the model is refused.";
    MALFORMED_NODE Error own "malformed-node" "NODE-06"
        "compare it with the operator's definition"
        "A node cannot run as it stands.";
    NO_EXACT_UPGRADE Error own "no-exact-upgrade" "VER-25"
        "convert the model with a tool that may change its results"
        "A node of an old version of its operator has no exact equivalent in the newest one.";
    NO_EXACT_CONVERSION Error own "no-exact-conversion" "VER-25"
        "convert to another version, or change the node"
        "What the model says here has no exact equivalent in the versions that it is to be converted to.";
    NO_GRADIENT Error own "no-gradient" ""
        "let xs and zs name values of floats from which y is computed by operators that have gradients"
        "A `Gradient` node asks for the derivative of y by the xs, computed from the graph between them. Names must exist, y must follow from the xs, the zs and constants alone, and each operator on the way must have a gradient.";
}

/// The code with a name.
pub fn code(name: &str) -> Option<&'static Code> {
    CODES.iter().find(|code| code.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_words_with_advice() {
        let names: HashSet<&str> = CODES.iter().map(|code| code.name).collect();
        assert_eq!(names.len(), CODES.len());
        for code in CODES {
            let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(code.name.chars().all(fine), "{}", code.name);
            assert!(!code.help.ends_with('.'), "{}", code.name);
            assert!(code.about.ends_with(['.', '?', ')']), "{}", code.name);
        }
    }
}
