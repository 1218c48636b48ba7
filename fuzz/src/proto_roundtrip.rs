//! Property: writing a message that was read is stable, so a second round trip changes nothing.
//!
//! Checked for every message type by the table of fields, and for models by the graph. The first
//! byte chooses the message type, the rest is the message.

use sardonyx_model::Model;
use sardonyx_proto::*;
use sardonyx_tensor::Buffer;

/// Rewriters of each message type.
const TYPES: &[fn(&[u8], Limits) -> Result<Vec<u8>, Error>] = &[
    rewrite::<ModelProto>,
    rewrite::<OperatorSetIdProto>,
    rewrite::<GraphProto>,
    rewrite::<NodeProto>,
    rewrite::<AttributeProto>,
    rewrite::<ValueInfoProto>,
    rewrite::<TensorProto>,
    rewrite::<TensorSegment>,
    rewrite::<SparseTensorProto>,
    rewrite::<TensorShapeProto>,
    rewrite::<Dimension>,
    rewrite::<TypeProto>,
    rewrite::<TensorTypeProto>,
    rewrite::<SequenceTypeProto>,
    rewrite::<MapTypeProto>,
    rewrite::<OptionalTypeProto>,
    rewrite::<SparseTensorTypeProto>,
    rewrite::<OpaqueTypeProto>,
    rewrite::<FunctionProto>,
    rewrite::<TrainingInfoProto>,
    rewrite::<StringStringEntryProto>,
    rewrite::<TensorAnnotation>,
    rewrite::<DeviceConfigurationProto>,
    rewrite::<NodeDeviceConfigurationProto>,
    rewrite::<ShardingSpecProto>,
    rewrite::<IntIntListEntryProto>,
    rewrite::<ShardedDimProto>,
    rewrite::<SimpleShardedDimProto>,
    rewrite::<OperatorSetProto>,
    rewrite::<OperatorProto>,
    rewrite::<SequenceProto>,
    rewrite::<MapProto>,
    rewrite::<OptionalProto>,
];

/// Rewrites the bytes twice and compares the results.
pub(crate) fn check(input: &[u8]) {
    let Some((which, bytes)) = input.split_first() else {
        return;
    };
    let which = *which as usize % TYPES.len();
    let again = TYPES[which];
    if let Ok(once) = again(bytes, Limits::default()) {
        // A negative 32-bit number may take five bytes when read, but takes ten when written, and
        // so the lengths around it grow.
        assert!(once.len() <= 3 * bytes.len(), "rewriting made it much longer");
        let twice = again(&once, Limits::default()).expect("what was written can be read");
        assert!(once == twice, "rewriting is not stable");
    }
    if which == 0 {
        check_model(bytes);
    }
}

fn check_model(bytes: &[u8]) {
    let read = |bytes: &[u8]| Model::read(Buffer::from_vec(bytes.to_vec()));
    let Ok(model) = read(bytes) else { return };
    let once = model.to_bytes();
    assert_eq!(model.to_encoded().bytes(), once.len() as u64);
    let model = read(&once).expect("what was written can be read");
    assert!(once == model.to_bytes(), "a model's bytes are not stable");
}
