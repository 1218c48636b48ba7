//! Messages as protobuf JSON.
