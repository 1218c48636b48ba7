//! Sequences, maps and optional values.

use std::ffi::c_int;
use std::ptr;

use crate::interface::{
    FLOAT, Failure, INT64, Object, STRING, Session, Value, allocator, call, check, demand_failure,
    read,
};

const TENSOR: c_int = 1;
const SEQUENCE: c_int = 2;
const MAP: c_int = 3;
const OPTIONAL: c_int = 6;

fn kind(value: &Value) -> c_int {
    let mut kind = 0;
    check(call!(GetValueType(value.0 => Object, &mut kind => *mut c_int)));
    kind
}

fn count(value: &Value) -> usize {
    let mut count = 0;
    check(call!(GetValueCount(value.0 => Object, &mut count => *mut usize)));
    count
}

fn part(value: &Value, index: c_int) -> Result<Value, Failure> {
    let mut part = ptr::null_mut();
    read(call!(GetValue(
        value.0 => Object, index => c_int, allocator() => Object, &mut part => *mut Object
    )))?;
    Ok(Value(part))
}

fn make(kind: c_int, parts: &[&Value]) -> Result<Value, Failure> {
    let parts: Vec<Object> = parts.iter().map(|part| part.0).collect();
    let mut value = ptr::null_mut();
    read(call!(CreateValue(
        parts.as_ptr() => *const Object, parts.len() => usize, kind => c_int,
        &mut value => *mut Object
    )))?;
    Ok(Value(value))
}

fn has_value(value: &Value) -> bool {
    let mut found = -1;
    check(call!(HasValue(value.0 => Object, &mut found => *mut c_int)));
    found == 1
}

#[test]
fn sequences_go_in_and_out() {
    let session = Session::new(
        "g (seq(float[N]) s, float[M] x) => (seq(float[K]) t, float[L] y) {
        t = SequenceInsert (s, x) y = ConcatFromSequence <axis = 0> (t)
    }",
    );
    let (one, two) = (Value::floats(&[1.0]), Value::floats(&[2.0, 3.0]));
    let sequence = make(SEQUENCE, &[&one, &two]).unwrap();
    drop(one);
    assert_eq!((kind(&sequence), count(&sequence)), (SEQUENCE, 2));
    let outputs = session.run(&[(c"s", sequence.0), (c"x", two.0)], &[c"t", c"y"]).unwrap();
    assert_eq!(outputs[1].read::<f32>(), [1.0, 2.0, 3.0, 2.0, 3.0]);
    assert_eq!((kind(&outputs[0]), count(&outputs[0])), (SEQUENCE, 3));
    let last = part(&outputs[0], 2).unwrap();
    assert_eq!((kind(&last), last.read::<f32>()), (TENSOR, vec![2.0, 3.0]));
    // Items are copies.
    last.write(&[9f32]);
    assert_eq!(part(&outputs[0], 2).unwrap().read::<f32>(), [2.0, 3.0]);
    assert_eq!(two.read::<f32>(), [2.0, 3.0]);
    for index in [3, -1] {
        assert_eq!(part(&outputs[0], index).err().unwrap().code, 2);
    }
    let strings = Value::strings(&[c"a"]);
    assert!(make(SEQUENCE, &[&two, &strings]).err().unwrap().message.contains("cannot hold"));
    assert!(make(SEQUENCE, &[]).err().unwrap().message.contains("has no type"));
    assert!(make(TENSOR, &[&two]).is_err());
    let mut info = ptr::null_mut();
    check(call!(GetTypeInfo(sequence.0 => Object, &mut info => *mut Object)));
    let (mut inner, mut element) = (ptr::null_mut(), ptr::null_mut());
    check(call!(CastTypeInfoToSequenceTypeInfo(info => Object, &mut inner => *mut Object)));
    check(call!(GetSequenceElementType(inner => Object, &mut element => *mut Object)));
    let mut found = 0;
    check(call!(GetOnnxTypeFromTypeInfo(element => Object, &mut found => *mut c_int)));
    assert_eq!(found, TENSOR);
    check(call!(CastTypeInfoToMapTypeInfo(info => Object, &mut inner => *mut Object)));
    assert!(inner.is_null());
    call!(ReleaseTypeInfo(element => Object) -> ());
    call!(ReleaseTypeInfo(info => Object) -> ());
}

#[test]
fn maps_are_tensors_of_keys_and_values() {
    let session = Session::new(
        "g (map(string, float) m) => (float[1, 2] y) {
        y = ai.onnx.ml.DictVectorizer <string_vocabulary = [\"b\", \"a\"]> (m)
    }",
    );
    let keys = Value::strings(&[c"a", c"b"]);
    let values = Value::floats(&[1.0, 2.0]);
    let map = make(MAP, &[&keys, &values]).unwrap();
    assert_eq!((kind(&map), count(&map)), (MAP, 2));
    assert_eq!(part(&map, 0).unwrap().read_strings(), ["a", "b"]);
    assert_eq!(part(&map, 1).unwrap().read::<f32>(), [1.0, 2.0]);
    let outputs = session.run(&[(c"m", map.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [2.0, 1.0]);
    let mut info = ptr::null_mut();
    check(call!(SessionGetInputTypeInfo(
        session.0 => Object, 0 => usize, &mut info => *mut Object
    )));
    let (mut inner, mut key) = (ptr::null_mut(), 0);
    check(call!(CastTypeInfoToMapTypeInfo(info => Object, &mut inner => *mut Object)));
    check(call!(GetMapKeyType(inner => Object, &mut key => *mut c_int)));
    assert_eq!(key, STRING);
    let mut element = ptr::null_mut();
    check(call!(GetMapValueType(inner => Object, &mut element => *mut Object)));
    call!(ReleaseTypeInfo(element => Object) -> ());
    call!(ReleaseTypeInfo(info => Object) -> ());
    let three = Value::floats(&[1.0, 2.0, 3.0]);
    assert!(make(MAP, &[&keys, &three]).err().unwrap().message.contains("2 keys and 3 values"));
    assert!(make(MAP, &[&three, &three]).err().unwrap().message.contains("int64 or string"));
    assert!(make(MAP, &[&keys]).is_err());
}

#[test]
fn maps_of_a_classifier() {
    let session = Session::new(
        "g (float[N, 2] x) => (seq(map(int64, float)) y) {
        y = ai.onnx.ml.ZipMap <classlabels_int64s = [5, 7]> (x)
    }",
    );
    let x = Value::new(FLOAT, &[2, 2]);
    x.write(&[0.25f32, 0.75, 0.5, 0.5]);
    let outputs = session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
    assert_eq!(count(&outputs[0]), 2);
    let first = part(&outputs[0], 0).unwrap();
    assert_eq!(kind(&first), MAP);
    let keys = part(&first, 0).unwrap();
    assert_eq!((keys.shape(), keys.read::<i64>()), ((INT64, vec![2]), vec![5, 7]));
    assert_eq!(part(&first, 1).unwrap().read::<f32>(), [0.25, 0.75]);
}

#[test]
fn optional_values_may_be_missing() {
    let session = Session::new(
        "g (optional(float[N]) o) => (bool b, optional(float[N]) p) {
        b = OptionalHasElement (o) p = Identity (o)
    }",
    );
    let x = Value::floats(&[4.0]);
    let outputs = session.run(&[(c"o", x.0)], &[c"b", c"p"]).unwrap();
    assert_eq!(outputs[0].read::<bool>(), [true]);
    assert!(has_value(&outputs[1]));
    assert_eq!(outputs[1].read::<f32>(), [4.0]);
    let none = Session::new(
        "g () => (optional(float[N]) p) { p = Optional <type: type_proto = float[N]> () }",
    );
    let missing = none.run(&[], &[c"p"]).unwrap();
    assert!(!has_value(&missing[0]));
    let outputs = session.run(&[(c"o", missing[0].0)], &[c"b"]).unwrap();
    assert_eq!(outputs[0].read::<bool>(), [false]);
    let mut info = ptr::null_mut();
    check(call!(SessionGetInputTypeInfo(
        session.0 => Object, 0 => usize, &mut info => *mut Object
    )));
    let mut found = 0;
    check(call!(GetOnnxTypeFromTypeInfo(info => Object, &mut found => *mut c_int)));
    assert_eq!(found, OPTIONAL);
    let (mut inner, mut element) = (ptr::null_mut(), ptr::null_mut());
    check(call!(CastTypeInfoToOptionalTypeInfo(info => Object, &mut inner => *mut Object)));
    check(call!(GetOptionalContainedTypeInfo(inner => Object, &mut element => *mut Object)));
    call!(ReleaseTypeInfo(element => Object) -> ());
    call!(ReleaseTypeInfo(info => Object) -> ());
    let mut size = 0;
    demand_failure(call!(GetValueCount(x.0 => Object, &mut size => *mut usize)), 2, "neither");
}
