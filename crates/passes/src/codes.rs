//! Codes of findings: each with its severity, requirement, advice and description.

use crate::finding::{Code, Reference, Severity};

/// Severities in the table. `Pedantic` findings are only reported under `strict`.
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
/// advice; then a description.
macro_rules! codes {
    ($(
        $constant:ident $level:ident $reference:ident $name:literal $requirement:literal
        $help:literal
        $about:literal;
    )*) => {
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
        "set ir_version to the IR version that the model was written for"
        "`ir_version` is the version of the file format that a model follows, and many rules \
         depend on it. Without it the rest of the model is not defined. An empty file has no \
         version either: check whether the download or export was interrupted.";
    NEWER_IR_VERSION Error shared "newer-ir-version" "MODEL-03"
        "update the tool that reads the model, or export the model for an older IR version"
        "The IR version of the model is newer than the newest known one. The model may have fields \
         whose meaning is not known.";
    IR_VERSION_TOO_OLD Warning own "ir-version-too-old" "VER-23"
        "raise ir_version to the version named"
        "The model uses an element type, section or field that its IR version does not have. \
         Readers that respect the version may ignore or reject it.";
    OPSET_NEEDS_NEWER_IR Note own "opset-needs-newer-ir" "VER-19"
        "raise ir_version to the version named, unless an old reader must read the model"
        "Each release of the standard pairs operator sets with an IR version. Most tools read an \
         operator set that is newer than the IR version of the model, but no release has this \
         combination.";
    NO_GRAPH Error shared "no-graph" "MODEL-11"
        "check the file: it is empty or not a model"
        "A model must have a graph, which describes the computation.";
    NO_OPSET_IMPORT Error shared "no-opset-import" "MODEL-26"
        "add an opset_import entry with the operator set and its version"
        "Since IR version 3 a model lists the operator sets that it uses, with their versions. \
         Without a version the operators are not defined, since most of them changed over time.";
    OPSET_IMPORT_TOO_EARLY Error shared "opset-import-too-early" "MODEL-26"
        "raise ir_version to 3 or more, or remove opset_import"
        "Before IR version 3 a model cannot import operator sets; version 1 of `ai.onnx` is \
         implied. This model imports operator sets all the same.";
    OPSET_OUT_OF_RANGE Error shared "opset-out-of-range" "OPSET-30"
        "use an existing version, such as 21"
        "The version of an operator set must fit into 32 bits. A larger number is a mistake, or an \
         attempt to overflow a counter.";
    OPSET_WITHOUT_VERSION Error own "opset-without-version" "OPSET-01"
        "set the version; versions start at 1"
        "An imported operator set has no version, or a version below 1. No operator exists at such a version.";
    NEWER_OPSET Warning own "newer-opset" "VER-14"
        "update the tool that reads the model, or convert the model to an older version of the operator set"
        "The imported version of the operator set is newer than the newest known one. Its \
         operators are assumed to be those of the newest known version, which may be wrong.";
    DUPLICATE_OPSET_IMPORT Warning own "duplicate-opset-import" "OPSET-28"
        "keep one entry for each operator set: sardonyx set MODEL --opset VERSION -o FILE, with \
         the version that the entries have, leaves one"
        "The same operator set is imported more than once. Readers use either the last entry or the highest version.";
    BAD_OPSET_DOMAIN Pedantic own "bad-opset-domain" "OPSET-06"
        "use a name in reverse DNS notation, such as com.example.ops"
        "Custom operator sets should be named in reverse DNS notation, so that names of different \
         organizations differ.";
    NO_DOMAIN Note own "no-domain" "MODEL-07"
        "set domain to a name in reverse DNS notation, such as com.example"
        "The domain of a model names the organization that it belongs to. The standard required it \
         until release 1.20 and recommends it since; hardly any tool uses it.";
    BAD_DOMAIN Warning own "bad-domain" "MODEL-08"
        "use a name in reverse DNS notation, such as com.example"
        "The domain of a model names its organization, like a Java package: words of letters, \
         digits, `_` and `-`, separated by dots.";
    NO_PRODUCER Note own "no-producer" "MODEL-06"
        "set producer_name and producer_version"
        "A model should name the tool, and its version, that produced it. This helps to find the \
         cause of unexpected behavior.";
    DUPLICATE_METADATA Error shared "duplicate-metadata" "META-01"
        "keep one entry for each key"
        "Two metadata entries of the model have the same key. Readers differ in which one they use.";
    DUPLICATE_METADATA_BELOW Warning own "duplicate-metadata-below" "META-08"
        "keep one entry for each key"
        "Two entries of one key-value list have the same key. Readers differ in which one they use.";
    METADATA_WITHOUT_KEY Warning own "metadata-without-key" "META-08"
        "give the entry a key, or remove it"
        "An entry of a key-value list has a value but no key, so nothing can refer to it.";
    UNQUALIFIED_METADATA Pedantic own "unqualified-metadata" "META-05"
        "prefix the key with a name in reverse DNS notation, such as com.example.key"
        "Metadata keys without a prefix are reserved for later versions of the standard, which may \
         give them another meaning.";
    IMAGE_METADATA Warning own "image-metadata" "META-10"
        "use one of the values that the standard defines"
        "The metadata describes the pixel format of images by a value that the standard does not \
         define. Tools that prepare images by it may fail or prepare them wrongly.";
    INVALID_UTF8 Warning own "invalid-utf8" "WIRE-35"
        "write the string as UTF-8"
        "Strings of the format are UTF-8. Readers reject other bytes or replace them in different \
         ways, so that two different names may become equal.";
    MARKUP_IN_DOCUMENTATION Warning own "markup-in-documentation" "GRAPH-27"
        "use Markdown"
        "Documentation strings may be Markdown. HTML and other markup are not allowed: tools that \
         show them on a web page would have to sanitize them.";

    // Graphs.
    GRAPH_WITHOUT_NAME Error shared "graph-without-name" "GRAPH-01"
        "give the graph a name"
        "Every graph must have a non-empty name, including subgraphs of nodes.";
    NAMELESS_VALUE Error shared "nameless-value" "NAME-13"
        "give the value a name"
        "Inputs and outputs of graphs must have non-empty names, by which nodes and callers refer \
         to them. The empty name marks an omitted optional input or output.";
    DUPLICATE_INPUT Error shared "duplicate-input" "GRAPH-38"
        "rename one of them"
        "Two inputs of a graph have the same name, so references to it are ambiguous.";
    UNTYPED_VALUE Error shared "untyped-value" "GRAPH-14"
        "declare a type with an element type, such as float[N, 3]"
        "Inputs and outputs of the main graph must declare their types, so that callers know what \
         to pass and what they get.";
    SHAPELESS_VALUE Error shared "shapeless-value" "GRAPH-15"
        "declare a shape; dimensions may be symbolic or unknown"
        "Tensors that are inputs or outputs of the model must declare at least their rank. A shape \
         without dimensions is a scalar; an absent shape means that the rank is unknown.";
    UNKNOWN_ELEMENT_TYPE Error own "unknown-element-type" "TYPE-19"
        "use one of the element types of the standard"
        "An element type is given by a number. This number is `undefined` or not defined by the standard.";
    INCOMPLETE_TYPE Error own "incomplete-type" "TYPE-20"
        "complete the type"
        "Sequence and optional types need an element type, map types a key and a value type, opaque types a name.";
    OPTIONAL_ELEMENT Error own "optional-element" "TYPE-18"
        "use a tensor, sequence, map or sparse tensor type"
        "An optional holds a tensor, a sequence, a map or a sparse tensor, not another optional or an opaque value.";
    BAD_KEY_TYPE Error own "bad-key-type" "TYPE-17"
        "use an integer type of 8 to 64 bits, or string"
        "Keys of a map must be integers or strings.";
    NEGATIVE_DIMENSION Warning own "negative-dimension" "SHAPE-12"
        "leave the dimension unknown, or give it a name such as N"
        "A shape has a negative dimension. Old exporters wrote -1 for any size; readers interpret it differently.";
    WILDCARD_DIMENSION Warning own "wildcard-dimension" "SHAPE-10"
        "leave the dimension unknown, without a name"
        "The name of a dimension is empty, `?`, `None`, a negative number or `*`. An unknown \
         dimension has no name. Sardonyx takes dimensions so named as unknown, except for `*`, \
         which is a name like any other; other readers may take all that share a name for one \
         size.";
    BAD_DIMENSION_NAME Pedantic own "bad-dimension-name" "NAME-14"
        "use letters, digits and _"
        "The name of a dimension should be an identifier. Expressions such as `M + N` are common \
         and are treated as names.";
    DUPLICATE_TYPE Warning own "duplicate-type" "GRAPH-24"
        "keep one entry for each value"
        "The list of types of intermediate values has two entries for one value. Readers differ in which one they use.";
    TYPE_OF_NOTHING Note own "type-of-nothing" "GRAPH-24"
        "remove the entry"
        "A type is declared for a value that does not exist in this graph, often a leftover of an edit.";
    NAMELESS_INITIALIZER Error shared "nameless-initializer" "GRAPH-10"
        "give the initializer a name"
        "Initializers are referred to by name; without a name an initializer cannot be used.";
    DUPLICATE_INITIALIZER Error shared "duplicate-initializer" "GRAPH-10"
        "rename or remove one of them"
        "Two initializers of a graph, dense or sparse, have the same name. Readers differ in which one they use.";
    INITIALIZER_NOT_INPUT Error shared "initializer-not-input" "GRAPH-08"
        "add it to the graph's inputs, or raise ir_version to 4 or more"
        "Before IR version 4 every initializer must also be an input of the graph, as its default \
         value. Readers of such models look for it there.";
    INITIALIZED_SUBGRAPH_INPUT Error own "initialized-subgraph-input" "GRAPH-20"
        "rename the initializer"
        "An input of a subgraph gets its value from the node, so it cannot also be an initializer.";
    PASSED_CONSTANT_INPUT Error own "passed-constant-input" "GRAPH-21"
        "move inputs that are initializers after those that the node passes"
        "Up to IR version 3 initializers of a subgraph are also inputs, but must come after the \
         inputs that the node passes, which are matched by position.";
    DUPLICATE_DEFINITION Error shared "duplicate-definition" "GRAPH-18"
        "rename one of them"
        "A name must be defined once, by an input, an initializer or a node (an initializer may be \
         the default value of an input). With two definitions references are ambiguous.";
    SHADOWED_VALUE Error shared "shadowed-value" "GRAPH-32"
        "rename the output of the node in the subgraph"
        "An output of a node in a subgraph has the name of a value of an enclosing graph. The \
         subgraph can refer to that value by the same name, so the name is ambiguous.";
    SHADOWED_NAME Warning own "shadowed-name" "GRAPH-32"
        "rename the input or initializer of the subgraph"
        "An input or initializer of a subgraph has the name of a value of an enclosing graph. The \
         standard forbids this since release 1.19; older models have it, and tools that move nodes \
         between graphs may handle it wrongly.";
    UNDEFINED_VALUE Error shared "undefined-value" "NODE-01"
        "use the name of an input, an initializer or a node output; use an empty name to omit an optional input"
        "A node uses a value that is not defined: no input, initializer or node output has that name.";
    USED_TOO_EARLY Error shared "used-too-early" "GRAPH-02"
        "move the node that computes the value before the node that uses it"
        "Nodes must be sorted topologically: a value is computed before it is used. Readers that \
         run nodes in the order of the list fail.";
    CYCLE Error shared "cycle" "GRAPH-03"
        "remove the cycle; use Loop or Scan for iteration"
        "Nodes depend on each other's outputs in a cycle, so none of them can run.";
    OUTER_TOO_EARLY Error shared "outer-too-early" "GRAPH-33"
        "move the node that computes the value before the node with the subgraph"
        "A subgraph can use values of enclosing graphs that are computed before its node. This \
         value is computed later.";
    UNDEFINED_OUTPUT Error shared "undefined-output" "GRAPH-30"
        "use the name of a node output, an input or an initializer of this graph; for a value of \
         an enclosing graph add an Identity node"
        "An output of a graph must be defined in that graph. No value of this graph has that name.";
    EMPTY_NODE Error shared "empty-node" "GRAPH-05"
        "remove the node"
        "A node without inputs and outputs has no effect.";
    NODE_WITHOUT_OUTPUT Warning own "node-without-output" "GRAPH-05"
        "name the outputs, or remove the node"
        "A node must have at least one output. The result of this node cannot be used.";
    DUPLICATE_NODE_NAME Warning own "duplicate-node-name" "NAME-05"
        "rename one of them, or remove the names"
        "Node names are for people and tools. Two nodes of a graph with the same name cannot be \
         told apart in messages and profiles.";
    DUPLICATE_GRAPH_NAME Pedantic own "duplicate-graph-name" "NAME-06"
        "use a different name for each graph"
        "Graph names should be unique within a model. Exporters often use one name for all \
         subgraphs; no tool depends on it.";
    NAME_NO_IDENTIFIER Pedantic own "name-no-identifier" "NAME-01"
        "use letters, digits and _, starting with a letter or _"
        "Names should be C identifiers. Exporters often use `/`, `.` and `:`, and tools accept \
         them; code generators may not.";
    UNUSED_NODE Note own "unused-node" "GRAPH-23"
        "remove the node, or use its outputs"
        "No output of the graph depends on this node. It is wasted work, or an output was forgotten.";
    UNUSED_INITIALIZER Note own "unused-initializer" "GRAPH-09"
        "remove the initializer"
        "No node uses this initializer and it is not an output. It only makes the file larger.";
    UNUSED_INPUT Note own "unused-input" "GRAPH-28"
        "remove the input, unless callers depend on it"
        "No node uses this input, but callers must pass it.";
    ANNOTATION_OF_NOTHING Warning own "annotation-of-nothing" "GRAPH-36"
        "use the name of a tensor of the graph"
        "A quantization annotation refers to the tensors with the scale and zero point of another \
         tensor. One of these tensors does not exist.";
    UNKNOWN_ANNOTATION Note own "unknown-annotation" "GRAPH-36"
        "use SCALE_TENSOR or ZERO_POINT_TENSOR"
        "The key of a quantization annotation is not defined by the standard.";

    // Nodes.
    NODE_WITHOUT_OPERATOR Error shared "node-without-operator" "NODE-03"
        "set op_type"
        "The node has no operator type.";
    OPSET_NOT_IMPORTED Error shared "opset-not-imported" "NODE-04"
        "add the operator set to opset_import with its version"
        "A node uses an operator set that the model, or the function that contains the node, does \
         not import. Without its version the operator is not defined.";
    UNKNOWN_OPERATOR Error shared "unknown-operator" "OPSET-14"
        "check the spelling; put custom operators into a domain of your own"
        "The standard has no operator of that name in this domain, in any version.";
    UNKNOWN_PREVIEW_OPERATOR Error own "unknown-preview-operator" "NODE-24"
        "check the spelling; put custom operators into a domain of your own"
        "The preview domains of the standard have no operator of that name.";
    OPERATOR_NOT_YET Error shared "operator-not-yet" "VER-17"
        "import a version of the operator set that has the operator, or use an older operator"
        "The operator was added to the standard after the version of the operator set that the model imports.";
    UNKNOWN_CUSTOM_OPERATOR Error shared "unknown-custom-operator" "OPSET-14"
        "register the operator, or add a function that defines it"
        "The operator is in a custom domain and no definition of it is known. This is an error \
         only if operators of custom domains are checked.";
    UNKNOWN_FUNCTION Warning own "unknown-function" "FUNC-03"
        "check the name, or add the function"
        "The model defines functions of this domain, but not this one. Only a runtime with an \
         operator of that name can run the node.";
    UNKNOWN_OVERLOAD Error own "unknown-overload" "NODE-07"
        "use an overload of the function"
        "The node calls a function of the model by name and overload. The model has the function, \
         but not this overload.";
    EXPERIMENTAL_OPERATOR Warning own "experimental-operator" "OPSET-20"
        "replace it by other operators"
        "The operator is an experiment of early releases that was not adopted, or its operator set \
         marks it as experimental. It may change, and few runtimes support it.";
    DEPRECATED_OPERATOR Error shared "deprecated-operator" "OPSET-29"
        "use the operator that replaces it"
        "The operator is deprecated since this version of the operator set.";
    INPUT_COUNT Error shared "input-count" "NODE-06"
        "compare with the inputs of the operator"
        "The node has more or fewer inputs than the operator allows.";
    OUTPUT_COUNT Error shared "output-count" "NODE-06"
        "compare with the outputs of the operator"
        "The node has more or fewer outputs than the operator allows.";
    MISSING_INPUT Error shared "missing-input" "NODE-15"
        "name the input; only optional inputs can be omitted"
        "An empty name omits an input. This is allowed only for optional inputs.";
    NAMELESS_VARIADIC_INPUT Error own "nameless-variadic-input" "NODE-11"
        "remove the empty name"
        "An empty name omits an optional input. The inputs of a variadic parameter are a list, \
         which has as many elements as the node names, so none of them can be omitted.";
    MISSING_OUTPUT Error shared "missing-output" "NODE-16"
        "name the output; only optional outputs can be omitted"
        "An empty name omits an output. This is allowed only for optional outputs.";
    UNKNOWN_ATTRIBUTE Error shared "unknown-attribute" "NODE-21"
        "remove the attribute, or check its name"
        "The operator has no attribute of that name in this version. The author relies on an \
         attribute that runtimes ignore or reject. (Names that begin with two underscores are not \
         checked.)";
    DUPLICATE_ATTRIBUTE Error shared "duplicate-attribute" "NAME-03"
        "keep one of them"
        "A node has two attributes with the same name. Readers differ in which one they use.";
    MISSING_ATTRIBUTE Error shared "missing-attribute" "NODE-21"
        "add the attribute"
        "The operator requires this attribute; it has no default.";
    ATTRIBUTE_TYPE Error shared "attribute-type" "NODE-06"
        "use a value of the type that the operator declares"
        "The type of the attribute differs from the type that the operator declares.";
    INPUT_TYPE Error own "input-type" "NODE-06"
        "convert the input with Cast, or use another operator"
        "The type of an input is known, and the operator does not accept it.";
    SUBGRAPH_INPUTS Error own "subgraph-inputs" "GRAPH-39"
        "give the subgraph as many inputs as the node passes"
        "The values that a node passes to a subgraph are matched with the subgraph's inputs by \
         position. Their numbers differ.";
    SUBGRAPH_OUTPUTS Error own "subgraph-outputs" "GRAPH-39"
        "give the subgraph as many outputs as the node expects"
        "The outputs of a subgraph are matched with the outputs of its node by position. Their numbers do not fit.";

    // Attributes.
    NAMELESS_ATTRIBUTE Error shared "nameless-attribute" "ATTR-01"
        "give the attribute a name"
        "Attributes are matched by name; without a name the value has no meaning.";
    UNTYPED_ATTRIBUTE Error shared "untyped-attribute" "ATTR-02"
        "set the type of the attribute to that of its value"
        "Since IR version 2 an attribute must declare its type. Otherwise an empty list cannot be \
         told from a missing value.";
    UNKNOWN_ATTRIBUTE_TYPE Error shared "unknown-attribute-type" "ATTR-18"
        "use one of the attribute types of the standard"
        "The type of an attribute is given by a number. This number is not defined by the standard.";
    SEVERAL_VALUES Error shared "several-values" "ATTR-03"
        "keep the value that the type declares"
        "An attribute holds exactly one value. Readers differ in which of several values they use.";
    VALUE_OF_OTHER_TYPE Error shared "value-of-other-type" "ATTR-03"
        "set the type to that of the value"
        "The declared type of the attribute differs from the type of its value.";
    ATTRIBUTE_WITHOUT_VALUE Error shared "attribute-without-value" "ATTR-03"
        "add a value, or remove the attribute"
        "An attribute of this type must have a value. Numbers, strings and lists may be absent, \
         which means 0, an empty string or an empty list; tensors, graphs and types may not.";
    REFERENCE_OUTSIDE_FUNCTION Error own "reference-outside-function" "ATTR-11"
        "give the attribute a value"
        "An attribute may refer to an attribute of the enclosing function. A graph of the model is \
         not inside of a function, so the reference has no value.";
    REFERENCE_WITH_VALUE Error shared "reference-with-value" "ATTR-10"
        "remove the value or the reference"
        "An attribute that refers to an attribute of the function must not have a value. Readers \
         differ in which of the two they use.";
    UNKNOWN_REFERENCE Error own "unknown-reference" "ATTR-10"
        "declare the attribute in the function, or refer to a declared one"
        "An attribute refers to an attribute of the enclosing function that the function does not declare.";
    REFERENCE_TYPE Error own "reference-type" "ATTR-17"
        "use the type of the function's attribute"
        "An attribute refers to an attribute of the enclosing function, but declares another type.";
    ATTRIBUTE_TEXT_NOT_UTF8 Warning own "attribute-text-not-utf8" "ATTR-05"
        "write the string as UTF-8"
        "The string of an attribute should be UTF-8. Other bytes are kept unchanged, but readers \
         handle them differently.";

    EMPTY_WORD Note own "empty-word" "ATTR-16"
        "write the word, or remove the attribute"
        "The attribute takes one of several words, and its text is empty, or its value is left out \
         of the file, which means an empty text. That is none of the words. Runtimes take it for \
         the default, as Sardonyx does, or reject it.";

    // Functions.
    NAMELESS_FUNCTION Error shared "nameless-function" "FUNC-19"
        "give the function a name"
        "Nodes call a function by its name; without a name it cannot be called.";
    FUNCTION_WITHOUT_DOMAIN Error shared "function-without-domain" "FUNC-19"
        "set the domain; it may be an empty string"
        "A function must have a domain, which may be the empty string.";
    DUPLICATE_FUNCTION Error shared "duplicate-function" "FUNC-02"
        "rename one of them, or set an overload"
        "Two functions of the model have the same domain, name and overload, so calls are \
         ambiguous. (Overloads exist since IR version 10.)";
    DUPLICATE_FUNCTION_INPUT Error shared "duplicate-function-input" "FUNC-18"
        "rename one of them"
        "Two inputs of a function have the same name.";
    DUPLICATE_FUNCTION_OUTPUT Error shared "duplicate-function-output" "FUNC-18"
        "remove one of them, or pass it through an Identity node"
        "Two outputs of a function have the same name.";
    DUPLICATE_FUNCTION_ATTRIBUTE Error shared "duplicate-function-attribute" "FUNC-07"
        "keep one of them"
        "A function declares the same attribute twice.";
    ATTRIBUTE_WITH_AND_WITHOUT_DEFAULT Error own "attribute-with-and-without-default" "FUNC-07"
        "keep one of them"
        "A function lists attributes with and without default separately. This attribute is in \
         both lists, or twice in the list with defaults.";
    UNDEFINED_FUNCTION_OUTPUT Error own "undefined-function-output" "FUNC-31"
        "use the name of a node output or an input of the function"
        "An output of a function must be a node output or an input of the function. Nothing in the \
         function has that name, so calls cannot be computed.";
    FUNCTION_OPSET_MISMATCH Error shared "function-opset-mismatch" "FUNC-16"
        "import the same version in the function and the model"
        "A function and the model import different versions of an operator set, and an operator \
         that the function uses differs between them. Inlining the function would change the \
         result.";
    RECURSIVE_FUNCTION Error shared "recursive-function" "FUNC-15"
        "remove the recursion; use Loop for iteration"
        "Functions of the model call each other in a cycle. Calls are replaced by function bodies, \
         which would never end.";
    TOO_MANY_FUNCTIONS Error shared "too-many-functions" "FUNC-32"
        "remove functions that are not called"
        "The model has more functions than any exporter writes. Readers reject such models to limit their work.";
    CALLS_TOO_DEEP Error shared "calls-too-deep" "FUNC-32"
        "inline some of the functions"
        "Function calls are nested more deeply than any exporter writes. Readers reject such \
         models to limit their work.";
    CALL_WITHOUT_INPUT Error own "call-without-input" "NODE-15"
        "pass a value for the input"
        "A call leaves out an input of a function. An operator in the function's body, or in a \
         function that it calls, requires the input.";
    CALL_ARGUMENTS Error own "call-arguments" "FUNC-23"
        "compare with the inputs and outputs of the function"
        "A node calls a function with more inputs or outputs than the function has.";
    CALL_ATTRIBUTE Warning own "call-attribute" "FUNC-06"
        "remove the attribute, or declare it in the function"
        "A node passes an attribute that the function does not declare. It has no effect.";

    // Stored tensors.
    NO_ELEMENT_TYPE Error shared "no-element-type" "TENSOR-09"
        "set data_type to one of the element types of the standard"
        "A tensor must declare its element type. If it is missing or not defined by the standard, \
         the values cannot be read.";
    NEGATIVE_DIM Error shared "negative-dim" "TENSOR-33"
        "use dimensions of 0 or more"
        "A stored tensor has a fixed size, so its dimensions cannot be negative.";
    SIZE_OVERFLOW Error shared "size-overflow" "TENSOR-32"
        "correct the dimensions"
        "The number of elements of the tensor overflows 64 bits. A reader without a check would \
         allocate too little memory.";
    SEGMENT Warning own "segment" "TENSOR-29"
        "store the whole tensor"
        "The tensor is a segment of a larger tensor, a feature of early releases that no runtime supports.";
    NO_DATA Error shared "no-data" "TENSOR-11"
        "store the values"
        "The shape of the tensor requires values, but there are none.";
    DATA_OF_NOTHING Error shared "data-of-nothing" "TENSOR-04"
        "remove the values, or correct the dimensions"
        "A dimension of the tensor is 0, so it has no elements; but values are stored.";
    TWO_PAYLOADS Error shared "two-payloads" "TENSOR-10"
        "keep one of them"
        "The values of a tensor must be stored in raw_data or in the field of its element type. \
         Two of these are filled; readers differ in which one they use.";
    WRONG_LIST Error shared "wrong-list" "TENSOR-10"
        "store the values in the field of the element type, or in raw_data"
        "Each element type has a field for its values. The values of this tensor are in another field.";
    STRINGS_IN_RAW Error shared "strings-in-raw-data" "TENSOR-23"
        "store the strings in string_data"
        "Strings have no fixed size and cannot be stored in raw_data.";
    DATA_TOO_SHORT Error shared "data-too-short" "TENSOR-26"
        "store as many values as the shape requires"
        "There are fewer values than the shape requires. A reader without a check would read out of bounds.";
    PACKED_ENTRIES_MISSING Error own "packed-entries-missing" "TENSOR-15"
        "store one byte in each entry of int32_data: two 4-bit or four 2-bit elements"
        "4-bit and 2-bit elements are packed in int32_data, one byte in each entry. There are \
         fewer entries than needed, as if each held four bytes; readers interpret this \
         differently.";
    SURPLUS Warning own "surplus-data" "TENSOR-26"
        "remove the surplus values, or correct the dimensions"
        "There are more values than the shape requires. Readers ignore the rest; often the shape is wrong.";
    PADDING_BITS Error shared "padding-bits" "TENSOR-40"
        "set the unused bits of the last byte to zero"
        "6-bit floats are packed, four in three bytes. The unused bits of the last byte must be zero.";
    SIX_BIT_RANGE Error shared "six-bit-range" "TENSOR-41"
        "store each element in the lowest six bits of its entry"
        "An entry of int32_data holds one 6-bit float, as a number from 0 to 63.";
    ENTRY_RANGE Error own "entry-out-of-range" "TENSOR-13"
        "store numbers that the element type can hold"
        "An entry of int32_data or uint64_data does not fit into the element type of the tensor, \
         such as 300 in a tensor of int8. A reader that keeps the lowest bits computes with \
         another number.";
    STRING_NOT_UTF8 Warning own "string-not-utf8" "TYPE-06"
        "write the strings as UTF-8"
        "Elements of a string tensor must be UTF-8. Readers reject other bytes or replace them in different ways.";
    UNKNOWN_DATA_LOCATION Warning own "unknown-data-location" "TENSOR-30"
        "use DEFAULT or EXTERNAL"
        "The data location of a tensor is not defined by the standard. The values are assumed to be in the model.";
    SPARSE_WITHOUT_VALUES Error shared "sparse-without-values" "TENSOR-34"
        "store the values"
        "A sparse tensor has values and their indices. The values are missing.";
    SPARSE_VALUES_RANK Error shared "sparse-values-rank" "TENSOR-34"
        "store the values as a 1-D tensor"
        "The values of a sparse tensor must be a 1-D tensor.";
    SPARSE_DIMS Error shared "sparse-dims" "TENSOR-37"
        "correct the dimensions"
        "A sparse tensor must have at least one dimension, and all dimensions must be greater than 0.";
    SPARSE_INDICES Error shared "sparse-indices" "TENSOR-35"
        "store one index, or one index for each dimension, for each value, as int64"
        "The indices of a sparse tensor must be int64: one number for each value (its linear \
         index), or one row of numbers for each value.";
    SPARSE_INDEX_RANGE Error shared "sparse-index-range" "TENSOR-37"
        "correct the indices or the dimensions"
        "An index of a sparse tensor is out of range.";
    SPARSE_INDEX_ORDER Error shared "sparse-index-order" "TENSOR-36"
        "sort values and indices, and remove duplicates"
        "The indices of a sparse tensor must be ascending and unique.";
    SPARSE_WITHOUT_INDICES Error shared "sparse-without-indices" "TENSOR-38"
        "store the indices"
        "A sparse tensor has values but no indices.";

    // Values outside of the file.
    EXTERNAL_WITHOUT_LOCATION Error shared "external-without-location" "EXT-02"
        "add a location: the data file beside the model"
        "The values of the tensor are external, but no file is named.";
    EXTERNAL_AND_INLINE Error shared "external-and-inline" "EXT-03"
        "keep one of them"
        "The values of the tensor are declared external, but the model has values too. Readers \
         differ in which ones they use.";
    EXTERNAL_STRINGS Error own "external-strings" "EXT-18"
        "store the strings in string_data"
        "Strings cannot be stored in external data files.";
    BAD_LOCATION Error shared "bad-location" "EXT-09"
        "use a file in the directory of the model, with a relative path without `..`"
        "The location of a data file is outside of the model's directory, or may be on some \
         systems. A reader that follows it would expose other files to the model.";
    BAD_RANGE Error own "bad-range" "EXT-07"
        "write offset and length as numbers of bytes in decimal digits"
        "Offset or length of external data is not a number. Readers interpret it differently.";
    LENGTH_MISMATCH Error own "length-mismatch" "EXT-16"
        "correct the length, the dimensions or the element type"
        "The length of the external data does not match the shape and element type of the tensor.";
    SURPLUS_EXTERNAL Warning own "surplus-external-data" "EXT-16"
        "store the length, or correct the dimensions"
        "The values of a tensor are the rest of its data file, and that has more bytes than the \
         shape requires. Readers ignore what comes after; often the shape is wrong, or the data \
         file is that of another model.";
    UNKNOWN_EXTERNAL_KEY Warning own "unknown-external-key" "EXT-15"
        "use location, offset, length and checksum"
        "An external data entry has a key that the standard does not define; readers ignore it.";
    DATA_FILE_MISSING Error shared "data-file-missing" "EXT-22"
        "put the data file beside the model, with the name that the model uses"
        "The data file of a tensor does not exist or cannot be opened, so the model is incomplete.";
    DATA_FILE_TOO_SHORT Error own "data-file-too-short" "EXT-14"
        "get the data file again; the download may have been interrupted"
        "The values of a tensor are beyond the end of its data file.";

    // Training.
    BINDING_TARGET Error own "binding-target" "TRAIN-03"
        "use an initializer of the main graph or of the training algorithm"
        "Training assigns results to state variables, which are initializers of the main graph or \
         of the training algorithm. There is no initializer of that name.";
    BINDING_SOURCE Error own "binding-source" "TRAIN-04"
        "use an output of the graph that is run"
        "Training assigns outputs of the initialization or of the algorithm to state variables. \
         There is no output of that name.";
    DUPLICATE_BINDING Error own "duplicate-binding" "TRAIN-05"
        "assign each state variable once"
        "A state variable is assigned twice in one step, so its value depends on the order.";
    VARIABLE_BOUND_TWICE Warning own "variable-bound-twice" "TRAIN-08"
        "assign each state variable in one training entry only"
        "Two training entries assign the same state variable. Its value depends on which of them runs last.";
    INITIALIZATION_MISSING Error own "initialization-missing" "TRAIN-13"
        "add the initialization graph, or remove its bindings"
        "A training entry has bindings of an initialization graph, but no such graph.";
    INITIALIZATION_INPUT Error own "initialization-input" "TRAIN-18"
        "replace the input by a constant"
        "The initialization graph computes initial values of state variables and has no inputs, as \
         no caller could pass them.";
    TRAINING_NAME_CLASH Error own "training-name-clash" "TRAIN-16"
        "rename it in the training algorithm"
        "A training algorithm runs together with the main graph, so they share names. This name is defined in both.";
    BINDING_TYPE Error own "binding-type" "TRAIN-25"
        "assign a value with the type and shape of the variable"
        "A state variable keeps its element type and shape; the value assigned to it has another type or shape.";

    // Devices.
    NAMELESS_CONFIGURATION Error own "nameless-configuration" "DIST-02"
        "give the configuration a name"
        "Nodes refer to a device configuration by its name.";
    DEVICE_COUNT Error own "device-count" "DIST-03"
        "set num_devices to 1 or more"
        "A device configuration must have a number of devices.";
    DEVICE_NAMES Error own "device-names" "DIST-04"
        "name all devices, or none"
        "A device configuration that names devices must name all of them.";
    DUPLICATE_CONFIGURATION Error own "duplicate-configuration" "DIST-35"
        "rename one of them"
        "Two device configurations have the same name, or a node refers to one twice.";
    UNKNOWN_CONFIGURATION Error own "unknown-configuration" "DIST-05"
        "use one of the model's configurations"
        "A node refers to a device configuration that the model does not have.";
    SHARDED_TENSOR Error own "sharded-tensor" "DIST-08"
        "use an input or output of the node"
        "A sharding describes how an input or output of its node is split across devices. The node \
         has no input or output of that name.";
    UNKNOWN_DEVICE Error own "unknown-device" "DIST-09"
        "use devices from 0 to num_devices - 1; groups of devices need an entry in index_to_device_group_map"
        "A tensor is placed on a device that the configuration does not have.";
    SHARDED_AXIS Error own "sharded-axis" "DIST-12"
        "use an axis of the tensor; negative values count from the end"
        "A sharding splits axes of a tensor. This axis is missing, out of range, or listed twice.";
    SHARD_COUNT Error own "shard-count" "DIST-15"
        "set num_shards to 1 or more"
        "A sharding must have the number of parts that an axis is split into.";

    // Documents of operator sets.
    BAD_MAGIC Error own "bad-magic" "OPSET-10"
        "set magic to ONNXOPSET, or check the kind of the file"
        "An OperatorSetProto file begins with the string ONNXOPSET, by which programs recognize it.";
    SET_WITHOUT_DOMAIN Error own "set-without-domain" "OPSET-05"
        "set the domain to a name in reverse DNS notation, such as com.example.ops"
        "A custom operator set must have a domain. The empty domain is that of the standard.";
    SET_WITHOUT_VERSION Error own "set-without-version" "OPSET-04"
        "set opset_version; versions start at 1"
        "Models import an operator set by version. This operator set has no version.";
    DECLARED_WITHOUT_NAME Error own "declared-without-name" "OPSET-15"
        "give the operator a name"
        "An operator of an operator set has no name, so nodes cannot use it.";
    DECLARED_TWICE Error own "declared-twice" "OPSET-21"
        "keep one of them"
        "An operator set declares the same operator twice for the same version. Functions count as operators.";
    DECLARED_TOO_LATE Error own "declared-too-late" "OPSET-21"
        "set since_version to the version of the set that added the operator, or raise opset_version"
        "The version that added an operator cannot be later than the version of the operator set.";
    UNKNOWN_STATUS Warning own "unknown-status" "OPSET-19"
        "use EXPERIMENTAL or STABLE"
        "The status of an operator is given by a number. This number is not defined by the standard.";

    // Stored values.
    VALUE_OF_OTHER_KIND Error own "value-of-other-kind" "TYPE-26"
        "set elem_type to the kind that is stored, and store nothing else"
        "A stored sequence or optional declares whether it holds tensors, sequences, maps or other \
         values, and fills the field for these. Another field is filled.";
    MIXED_VALUES Error own "mixed-values" "TYPE-29"
        "convert the elements to one type"
        "The elements of a sequence, and the values of a map, must have the same type.";
    STORED_KEYS Error own "stored-keys" "TYPE-27"
        "store one key for each value: integers in keys, strings in string_keys"
        "A stored map must have as many keys as values. Its keys are integers or strings, as its \
         key type declares, in the field for these.";

    // Findings of other jobs.
    TYPES_CONTRADICT Error full "types-contradict" "SHAPE-17"
        "compare the types of the inputs"
        "Types and shapes of the inputs of a node contradict each other or the rules of the operator.";
    DENOTATION_MISMATCH Warning own "denotation-mismatch" "SHAPE-14"
        "transpose the input, or correct the denotations of its dimensions"
        "A dimension can have a denotation, such as `DATA_BATCH`, `DATA_CHANNEL` or \
         `DATA_FEATURE`, that describes its meaning. Operators on images, such as Conv and \
         AveragePool, expect batch, channel and features in this order, and filters in an order of \
         their own. According to the declared or inferred denotations, the dimensions of an input \
         are in another order. The model runs, but probably does not compute what was intended.";
    FIXED_SIZE Warning own "fixed-size" ""
        "declare the size as the number, or change what the node reads"
        "An input of the model declares a size by a name, so callers may choose it, but a node \
         accepts only one number. Often the target of a Reshape still holds the batch size that \
         the model was exported with. A run with another size fails.";
    RUNTIMES_DIFFER Note own "runtimes-differ" ""
        "compare the outputs if the model also runs on ONNX Runtime"
        "The outputs of the node, or their sizes, differ between runtimes by more than rounding: \
         the standard leaves them open, or ONNX Runtime does not follow it. The page on running \
         models lists all such operators. Some differ only for certain values of an input, which \
         only a run knows. Sizes are compared with `--full`, and without it as far as the model \
         declares them.";
    CUT_WINDOW Note own "cut-window" ""
        "pad the axis so that the kernel fits, if other tools must give the same shape"
        "A pool has an axis that is shorter than its kernel by less than a stride. The formula of \
         the standard rounds its division down and gives no window. ONNX Runtime, the shape \
         inference of the `onnx` package and the tools that trained such models round towards \
         zero, which gives one window that is cut off at the end of the axis. Sardonyx does so \
         too, in a run and in shape inference.";
    TOO_MUCH_TO_INFER Warning own "too-much-to-infer" "SHAPE-15"
        "inline the functions, or omit types and shapes"
        "Nested function calls or loops would have to be inferred too many times. Types and shapes \
         after this node are unknown.";
    RANK_ABOVE_LIMIT Warning own "rank-above-limit" "SHAPE-15"
        "reshape the value: 64 dimensions of size 2 already have more elements than fit into memory"
        "The rank of a tensor is limited to 64, as in NumPy. The standard has no limit, but work \
         and memory would be unbounded. The shape of this value is treated as unknown; sessions \
         reject the model.";
    MALFORMED_NODE Error own "malformed-node" "NODE-06"
        "compare the node with the definition of the operator"
        "The node cannot run as written.";
    NO_EXACT_UPGRADE Error own "no-exact-upgrade" "VER-25"
        "convert the model with a tool that may change its results"
        "A node of an old operator version has no exact equivalent in the newest version.";
    NO_EXACT_CONVERSION Error own "no-exact-conversion" "VER-25"
        "convert to another version, or change the node"
        "This part of the model has no exact equivalent in the target versions.";
    NO_GRADIENT Error own "no-gradient" ""
        "use xs and zs that are floating-point values from which y is computed by operators with gradients"
        "A `Gradient` node requests the derivative of y with respect to xs, computed from the \
         graph between them. All names must exist, y must depend only on xs, zs and constants, and \
         every operator in between must have a gradient.";
}

/// Returns the code with a name.
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
