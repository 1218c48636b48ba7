//! Converts many messages at once, for `tests/formats/compare_formats.py`.
//!
//! Each line of standard input is an action, a message type, a file to read and a file to write,
//! separated by tabs. Each line of standard output is `ok` with the number of fields that were left
//! out, or the error.

use std::fs;
use std::io::{self, BufRead, Write};

use sardonyx_formats::{Error, Limits, json, text_format};
use sardonyx_proto::*;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let parts: Vec<&str> = line.split('\t').collect();
        let [action, message, from, to] = parts[..] else {
            return Err(io::Error::other(format!("four parts are needed: {line}")));
        };
        let input = fs::read(from)?;
        match convert(action, message, &input) {
            Some(Ok((output, left_out))) => {
                fs::write(to, output)?;
                writeln!(out, "ok {left_out}")?;
            }
            Some(Err(error)) => writeln!(out, "{error}")?,
            None => writeln!(out, "no message type is called {message}")?,
        }
    }
    Ok(())
}

/// Chooses the function for a message type by its name.
macro_rules! by_name {
    ($name:expr, $($message:ident)*) => {
        match $name {
            $( name if name == $message::DEF.name => Some(convert_one::<$message>), )*
            _ => None,
        }
    };
}

type Outcome = Result<(Vec<u8>, u64), Error>;

fn convert(action: &str, message: &str, input: &[u8]) -> Option<Outcome> {
    let convert: Option<fn(&str, &[u8]) -> Outcome> = by_name!(
        message,
        ModelProto OperatorSetIdProto GraphProto NodeProto AttributeProto ValueInfoProto TensorProto TensorSegment
        SparseTensorProto TensorShapeProto Dimension TypeProto TensorTypeProto SequenceTypeProto MapTypeProto
        OptionalTypeProto SparseTensorTypeProto OpaqueTypeProto FunctionProto TrainingInfoProto StringStringEntryProto
        TensorAnnotation DeviceConfigurationProto NodeDeviceConfigurationProto ShardingSpecProto IntIntListEntryProto
        ShardedDimProto SimpleShardedDimProto OperatorSetProto OperatorProto SequenceProto MapProto OptionalProto
    );
    convert.map(|convert| convert(action, input))
}

fn convert_one<M: MessageType>(action: &str, input: &[u8]) -> Outcome {
    let limits = Limits::default();
    let mut output = Vec::new();
    let left_out = match action {
        "write-json" => {
            json::write::<M>(input, json::WriteOptions::default(), &mut output)?.unknown_fields
        }
        "write-json-utf8" => {
            let options = json::WriteOptions { ascii: false, ..json::WriteOptions::default() };
            json::write::<M>(input, options, &mut output)?.unknown_fields
        }
        "write-text" | "write-text-unknown" => {
            let options = text_format::WriteOptions {
                limits,
                unknown_fields: action == "write-text-unknown",
            };
            text_format::write::<M>(input, options, &mut output)?.unknown_fields
        }
        "read-json" => {
            output = json::read::<M>(input, limits)?;
            0
        }
        _ => {
            output = text_format::read::<M>(input, limits)?;
            0
        }
    };
    Ok((output, left_out))
}
