//! Models that a caller builds of nodes.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use crate::interface::{Environment, FLOAT, Object, Session, Value, call, check, read};

/// Functions of the editor, by their place in its table.
mod place {
    pub(super) const CREATE_TENSOR_TYPE: usize = 0;
    pub(super) const CREATE_VALUE_INFO: usize = 5;
    pub(super) const CREATE_NODE: usize = 6;
    pub(super) const CREATE_GRAPH: usize = 7;
    pub(super) const SET_INPUTS: usize = 8;
    pub(super) const SET_OUTPUTS: usize = 9;
    pub(super) const ADD_INITIALIZER: usize = 10;
    pub(super) const ADD_NODE: usize = 11;
    pub(super) const CREATE_MODEL: usize = 12;
    pub(super) const ADD_GRAPH: usize = 13;
    pub(super) const CREATE_SESSION: usize = 14;
}

/// Calls a function of the editor.
macro_rules! edit {
    ($place:ident($($argument:expr => $ty:ty),* $(,)?)) => {{
        let table = call!(GetModelEditorApi() -> *const *const ());
        // SAFETY: the table has a function at each place.
        let address = unsafe { *table.add(place::$place) };
        // SAFETY: the types are those of the C header.
        let function = unsafe {
            std::mem::transmute::<*const (), unsafe extern "C" fn($($ty),*) -> Object>(address)
        };
        // SAFETY: the test passes what the C header demands.
        unsafe { function($($argument),*) }
    }};
}

fn make_value(name: &CStr) -> Object {
    let (mut tensor, mut ty, mut value) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    check(call!(CreateTensorTypeAndShapeInfo(&mut tensor => *mut Object)));
    check(call!(SetTensorElementType(tensor => Object, FLOAT => c_int)));
    check(call!(SetDimensions(tensor => Object, [-1i64, 2].as_ptr() => *const i64, 2 => usize)));
    let names = [c"N".as_ptr(), c"".as_ptr()];
    check(call!(SetSymbolicDimensions(
        tensor => Object, names.as_ptr() => *const *const c_char, 2 => usize
    )));
    check(edit!(CREATE_TENSOR_TYPE(tensor => Object, &mut ty => *mut Object)));
    check(edit!(CREATE_VALUE_INFO(
        name.as_ptr() => *const c_char, ty => Object, &mut value => *mut Object
    )));
    call!(ReleaseTypeInfo(ty => Object) -> ());
    call!(ReleaseTensorTypeAndShapeInfo(tensor => Object) -> ());
    value
}

#[test]
fn the_type_of_a_tensor_keeps_names_of_known_sizes() {
    let (mut tensor, mut ty, mut kept) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    check(call!(CreateTensorTypeAndShapeInfo(&mut tensor => *mut Object)));
    check(call!(SetTensorElementType(tensor => Object, FLOAT => c_int)));
    check(call!(SetDimensions(tensor => Object, [3i64, 2].as_ptr() => *const i64, 2 => usize)));
    let names = [c"N".as_ptr(), c"".as_ptr()];
    check(call!(SetSymbolicDimensions(
        tensor => Object, names.as_ptr() => *const *const c_char, 2 => usize
    )));
    check(edit!(CREATE_TENSOR_TYPE(tensor => Object, &mut ty => *mut Object)));
    call!(ReleaseTensorTypeAndShapeInfo(tensor => Object) -> ());
    check(call!(CastTypeInfoToTensorInfo(ty => Object, &mut kept => *mut Object)));
    let mut found = [ptr::null::<c_char>(); 2];
    check(call!(GetSymbolicDimensions(
        kept => Object, found.as_mut_ptr() => *mut *const c_char, 2 => usize
    )));
    // SAFETY: the names live as long as the type.
    let found = found.map(|name| unsafe { CStr::from_ptr(name) });
    assert_eq!(found, [c"N", c""]);
    call!(ReleaseTypeInfo(ty => Object) -> ());
}

#[test]
fn an_element_type_can_be_taken_back() {
    let (mut tensor, mut element) = (ptr::null_mut(), -1);
    check(call!(CreateTensorTypeAndShapeInfo(&mut tensor => *mut Object)));
    check(call!(SetTensorElementType(tensor => Object, FLOAT => c_int)));
    check(call!(SetTensorElementType(tensor => Object, 0 => c_int)));
    check(call!(GetTensorElementType(tensor => Object, &mut element => *mut c_int)));
    assert_eq!(element, 0);
    call!(ReleaseTensorTypeAndShapeInfo(tensor => Object) -> ());
}

#[test]
fn a_model_of_a_node_and_a_weight_runs() {
    let mut attribute = ptr::null_mut();
    check(call!(CreateOpAttr(
        c"transB".as_ptr() => *const c_char, &1i64 => *const i64, 1 => c_int, 1 => c_int,
        &mut attribute => *mut Object
    )));
    let mut kind = 0;
    check(call!(OpAttr_GetType(attribute => Object, &mut kind => *mut c_int)));
    assert_eq!(kind, 1);
    let (mut node, mut graph, mut model) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (inputs, outputs) = ([c"x".as_ptr(), c"w".as_ptr()], [c"y".as_ptr()]);
    check(edit!(CREATE_NODE(
        c"Gemm".as_ptr() => *const c_char, c"".as_ptr() => *const c_char,
        c"product".as_ptr() => *const c_char, inputs.as_ptr() => *const *const c_char, 2 => usize,
        outputs.as_ptr() => *const *const c_char, 1 => usize, &attribute => *const Object,
        1 => usize, &mut node => *mut Object
    )));
    check(edit!(CREATE_GRAPH(&mut graph => *mut Object)));
    check(
        edit!(SET_INPUTS(graph => Object, [make_value(c"x")].as_ptr() => *const Object, 1 => usize)),
    );
    check(
        edit!(SET_OUTPUTS(graph => Object, [make_value(c"y")].as_ptr() => *const Object, 1 => usize)),
    );
    let weight = Value::new(FLOAT, &[2, 2]);
    weight.write(&[1f32, 2.0, 3.0, 4.0]);
    check(edit!(ADD_INITIALIZER(
        graph => Object, c"w".as_ptr() => *const c_char, weight.0 => Object, false => bool
    )));
    // The graph owns it now.
    std::mem::forget(weight);
    check(edit!(ADD_NODE(graph => Object, node => Object)));
    let domains = [c"".as_ptr()];
    check(edit!(CREATE_MODEL(
        domains.as_ptr() => *const *const c_char, [21i32].as_ptr() => *const i32, 1 => usize,
        &mut model => *mut Object
    )));
    let env = Environment::new();
    let mut session = ptr::null_mut();
    let status = edit!(CREATE_SESSION(
        env.0 => Object, model => Object, ptr::null_mut() => Object, &mut session => *mut Object
    ));
    assert!(read(status).err().unwrap().message.contains("has no graph"));
    check(edit!(ADD_GRAPH(model => Object, graph => Object)));
    check(edit!(CREATE_SESSION(
        env.0 => Object, model => Object, ptr::null_mut() => Object, &mut session => *mut Object
    )));
    call!(ReleaseModel(model => Object) -> ());
    let session = Session(session, env);
    let x = Value::new(FLOAT, &[1, 2]);
    x.write(&[1f32, 1.0]);
    let outputs = session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [3.0, 7.0]);
}
