//! Table of all finding codes of a security scan: severity, violated requirement and advice.
//!
//! The names of codes are stable; messages may change.

/// Finding codes of the model checker.
mod check {
    pub(super) use sardonyx_passes::Code;
    pub(super) use sardonyx_passes::codes::*;
}

use sardonyx_passes::Severity;

/// A kind of finding: its name, severity, requirement and advice.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// Identifier of the violated requirement of the ONNX standard; empty if none is violated.
    pub(super) requirement: &'static str,
    pub(super) help: &'static str,
}

/// Defines the finding codes of the scan, one in each line: constant, severity, name, requirement,
/// help.
macro_rules! codes {
    ($( $constant:ident $severity:ident $name:literal $requirement:literal $help:literal; )*) => {
        $( pub(super) static $constant: Code = Code {
            name: $name,
            severity: Severity::$severity,
            requirement: $requirement,
            help: $help,
        }; )*

        #[cfg(test)]
        static ALL: &[&Code] = &[$( &$constant, )*];
    };
}

codes! {
    // The file.
    EMPTY Error "empty" "WIRE-36" "check whether the download or export was interrupted";
    NOT_A_MODEL Error "not-a-model" "" "do not load the file in a runtime";
    TRUNCATED Error "truncated" "WIRE-12" "check whether the download or export was interrupted; compare the file's size with the original";
    MALFORMED Error "malformed" "WIRE-12" "readers handle damaged bytes differently; get the file again";
    TOO_DEEP Error "too-deep" "WIRE-32" "readers that recurse would run out of stack";
    DEEP_NESTING Warning "deep-nesting" "WIRE-32" "libprotobuf, which most runtimes use, rejects more than 100 levels";
    TOO_MANY_MESSAGES Error "too-many-messages" "WIRE-32" "reading the file would take much more memory than its size; raise the limit if the model is that large";
    LARGE_FILE Note "large-file" "WIRE-31" "libprotobuf, which most runtimes use, rejects files above 2 GiB; keep weights in data files";
    FIELD_TWICE Warning "field-twice" "WIRE-21" "readers that use the first value and readers that use the last see different models";
    UNKNOWN_FIELD Note "unknown-field" "WIRE-19" "the field is of a newer format, or hides bytes; readers skip it";
    WIRE_TYPE Warning "wrong-wire-type" "WIRE-25" "readers skip a field of another wire type, or reject the file";
    UNKNOWN_ENUM Warning "unknown-enum" "WIRE-24" "the number is of a newer format, or a mistake; readers interpret it differently";
    INVALID_UTF8 Warning "invalid-utf8" "WIRE-35" "readers reject text that is not UTF-8, or display it differently";
    CONTROL_CHARACTERS Warning "control-characters" "" "a terminal or log viewer may interpret control characters as commands";
    DECEPTIVE_CHARACTERS Warning "deceptive-characters" "" "the name looks like another name when displayed";
    LONG_NAME Warning "long-name" "" "tools that show or copy names may run out of memory";
    PICKLE Warning "pickle" "" "never unpickle the bytes: unpickling runs code chosen by the author of the model";

    // Locations of data files, as text.
    LOCATION_MISSING Error "location-missing" "EXT-02" "the tensor's values cannot be found";
    LOCATION_EMPTY Error "location-empty" "EXT-02" "the tensor's values cannot be found";
    LOCATION_ABSOLUTE Error "location-absolute" "EXT-10" "a reader that follows the path exposes other files to the model; do not load the model";
    LOCATION_ESCAPES Error "location-escapes" "EXT-09" "a reader that follows the path exposes other files to the model; do not load the model";
    LOCATION_ADDRESS Error "location-address" "EXT-26" "a runtime that interprets the location as its own marker reads memory at an address chosen by the model; do not load the model";
    LOCATION_NUL Error "location-nul" "EXT-02" "readers handle the NUL character differently, so they open different files";
    LOCATION_NOT_UTF8 Error "location-not-utf8" "WIRE-35" "readers decode the location differently, so they open different files";
    LOCATION_BACKSLASH Warning "location-backslash" "EXT-25" "a backslash separates directories on Windows but not elsewhere; use '/'";
    LOCATION_CONTROL Warning "location-control" "" "a terminal or log viewer may interpret the control character as a command";
    LOCATION_RESERVED Warning "location-reserved" "" "on Windows the location names a device or another file";
    LOCATION_URL Warning "location-url" "EXT-02" "a reader that follows the address fetches data from the network";

    // Data files as they are on the disk.
    LINK_OUTSIDE Error "link-outside" "EXT-11" "a reader that follows the link exposes other files to the model; do not load the model";
    LINK_INSIDE Note "link-inside" "EXT-11" "some runtimes reject links";
    HARD_LINK Error "hard-link" "EXT-11" "the data file may be another user's file; replace it by a copy";
    NOT_A_FILE Error "not-a-file" "EXT-11" "values are read only from regular files";
    DATA_FILE_MISSING Error "data-file-missing" "EXT-02" "the model is incomplete without the data file";
    DATA_FILE_UNREADABLE Error "data-file-unreadable" "EXT-02" "the model is incomplete without the data file";
    NOT_LOOKED_AT Note "data-files-not-looked-at" "EXT-22" "scan the model file in the directory of its data files";
    TOO_MANY_DATA_FILES Warning "too-many-data-files" "" "data files above this number are not scanned";
    SAME_FILE Warning "same-file" "" "checks by file name miss overlapping ranges of one file";
    UNREFERENCED Note "unreferenced-bytes" "EXT-06" "no tensor uses the unreferenced bytes; they may contain anything";
    CHECKSUM_MALFORMED Warning "checksum-malformed" "EXT-05" "a SHA-1 has 40 hexadecimal digits";
    CHECKSUM_CONFLICT Warning "checksum-conflict" "EXT-05" "a file has only one SHA-1: at most one of these can be right";
    CHECKSUM_MISMATCH Error "checksum-mismatch" "EXT-05" "the data file is not the one that the model was written with";

    // References into data files.
    BAD_OFFSET Error "bad-offset" "EXT-07" "readers interpret a bad offset differently, and use different start positions";
    BAD_LENGTH Error "bad-length" "EXT-07" "readers interpret a bad length differently, and use different end positions";
    RANGE_OVERFLOW Error "range-overflow" "EXT-14" "a reader without an overflow check reads other bytes";
    RANGE_BEYOND_END Error "range-beyond-end" "EXT-14" "the data file is truncated, or the model claims data that does not exist";
    LENGTH_MISMATCH Error "length-mismatch" "EXT-16" "a reader that trusts only the length or only the shape reads or writes out of bounds";
    OVERLAP Warning "overlapping-ranges" "EXT-06" "ordinary writers never overlap the data of tensors";
    SHARED_RANGE Note "shared-range" "EXT-06" "shared (tied) weights; a reader that copies values needs memory for each tensor";
    UNALIGNED Note "unaligned" "EXT-12" "unaligned tensors cannot be memory-mapped individually";
    EXTERNAL_STRINGS Error "external-strings" "EXT-18" "strings cannot be stored in data files";
    EXTERNAL_AND_INLINE Error "external-and-inline" "EXT-03" "readers that use the data file and readers that use the model file see different values";
    EXTERNAL_IGNORED Note "external-data-ignored" "EXT-17" "a reader that ignores the data location opens the file";
    UNKNOWN_KEY Warning "unknown-key" "EXT-15" "readers ignore unknown keys";
    DUPLICATE_KEY Warning "duplicate-key" "META-08" "readers that use the first entry and readers that use the last see different models";
    CLAIMS Warning "claims-exceed-files" "EXT-14" "a reader that copies each tensor needs memory for all claimed bytes";

    // Tensors.
    NEGATIVE_DIM Error "negative-dim" "TENSOR-33" "a reader without an overflow check computes a wrong size";
    SIZE_OVERFLOW Error "size-overflow" "TENSOR-32" "a reader without an overflow check allocates too little memory";
    UNKNOWN_TYPE Error "unknown-element-type" "TENSOR-09" "the size of an element of unknown type is unknown";
    HIGH_RANK Warning "high-rank" "" "readers with a fixed number of dimensions may write out of bounds";
    SEGMENT Warning "segment" "TENSOR-29" "no runtime supports segments of tensors";
    NO_DATA Error "no-data" "TENSOR-11" "a reader that allocates first creates a large tensor for data that does not exist";
    TOO_SHORT Error "data-too-short" "TENSOR-26" "a reader without a length check reads out of bounds";
    SURPLUS Warning "surplus-bytes" "TENSOR-26" "no element uses the surplus bytes; they may contain anything";
    TWO_PAYLOADS Error "two-payloads" "TENSOR-10" "readers that use different data fields see different values";
    WRONG_LIST Error "wrong-list" "TENSOR-10" "readers interpret values in the wrong data field differently";
    STRINGS_IN_RAW Error "strings-in-raw-data" "TENSOR-23" "a reader that treats the bytes as string objects uses numbers of the file as addresses";
    SPARSE_EXPANSION Warning "sparse-expansion" "TENSOR-34" "a reader that makes the tensor dense needs memory for all elements";

    // Graphs.
    EXPANSION Warning "expansion" "" "running the node needs memory for all created elements";
    LONG_LOOP Note "long-loop" "" "unless the loop's condition ends it, running the model takes forever";
    RECURSION Error "recursive-functions" "FUNC-05" "inlining recursive functions never terminates";
    BILLION_LAUGHS Error "billion-laughs" "FUNC-26" "inlining these functions exhausts memory";
    FOREIGN_CODE Warning "foreign-code" "MODEL-19" "the operator runs code or opens files and connections chosen by the model; inspect the node's attributes";
    CUSTOM_DOMAIN Note "custom-domain" "MODEL-19" "operators of custom domains come from libraries that must be loaded";
    DUPLICATE_DEFINITION Warning "duplicate-definition" "NAME-02" "references to the name are ambiguous";
    DUPLICATE_FUNCTION Warning "duplicate-function" "FUNC-02" "references to the name are ambiguous";
    CYCLE Error "cycle" "GRAPH-03" "a reader that follows the nodes never ends";
}

/// Finding codes of the model checker that concern security, with the corresponding scan codes.
static FROM_CHECKER: &[(&check::Code, &Code)] = &[
    (&check::NO_ELEMENT_TYPE, &UNKNOWN_TYPE),
    (&check::NEGATIVE_DIM, &NEGATIVE_DIM),
    (&check::SIZE_OVERFLOW, &SIZE_OVERFLOW),
    (&check::SEGMENT, &SEGMENT),
    (&check::NO_DATA, &NO_DATA),
    (&check::DATA_TOO_SHORT, &TOO_SHORT),
    (&check::PACKED_ENTRIES_MISSING, &TOO_SHORT),
    (&check::SURPLUS, &SURPLUS),
    (&check::DATA_OF_NOTHING, &SURPLUS),
    (&check::TWO_PAYLOADS, &TWO_PAYLOADS),
    (&check::WRONG_LIST, &WRONG_LIST),
    (&check::STRINGS_IN_RAW, &STRINGS_IN_RAW),
    (&check::EXTERNAL_AND_INLINE, &EXTERNAL_AND_INLINE),
    (&check::EXTERNAL_STRINGS, &EXTERNAL_STRINGS),
    (&check::LENGTH_MISMATCH, &LENGTH_MISMATCH),
    (&check::UNKNOWN_EXTERNAL_KEY, &UNKNOWN_KEY),
    (&check::DUPLICATE_INPUT, &DUPLICATE_DEFINITION),
    (&check::DUPLICATE_INITIALIZER, &DUPLICATE_DEFINITION),
    (&check::DUPLICATE_DEFINITION, &DUPLICATE_DEFINITION),
    (&check::DUPLICATE_FUNCTION, &DUPLICATE_FUNCTION),
];

/// Returns the scan's finding code for a code of the model checker; `None` if the code does not
/// concern security.
pub(super) fn from_checker(code: &check::Code) -> Option<&'static Code> {
    let row = FROM_CHECKER.iter().find(|(known, _)| known.name == code.name);
    row.map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_words() {
        let names: HashSet<&str> = ALL.iter().map(|code| code.name).collect();
        assert_eq!(names.len(), ALL.len());
        for code in ALL {
            let mut bytes = code.name.bytes();
            let is_word = bytes.all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            assert!(is_word, "{}", code.name);
            assert!(!code.help.is_empty() && !code.help.ends_with('.'));
        }
    }
}
