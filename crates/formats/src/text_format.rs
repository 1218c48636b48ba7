//! Messages as protobuf text format.
