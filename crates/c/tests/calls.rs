//! Calls from Rust through the symbols: what examples do not show.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

type Object = *mut c_void;

unsafe extern "C" {
    fn sardonyx_version() -> *const c_char;
    fn sardonyx_error_code(error: Object) -> c_int;
    fn sardonyx_error_message(error: Object) -> *const c_char;
    fn sardonyx_error_help(error: Object) -> *const c_char;
    fn sardonyx_error_free(error: Object);
    fn sardonyx_text_free(text: *mut c_char);
    fn sardonyx_bytes_free(bytes: *mut u8, count: usize);
    fn sardonyx_model_open(path: *const c_char, model: *mut Object) -> Object;
    fn sardonyx_model_from_text(text: *const c_char, model: *mut Object) -> Object;
    fn sardonyx_model_from_bytes(bytes: *const u8, count: usize, model: *mut Object) -> Object;
    fn sardonyx_model_to_bytes(model: Object, bytes: *mut *mut u8, count: *mut usize) -> Object;
    fn sardonyx_model_to_text(model: Object, text: *mut *mut c_char) -> Object;
    fn sardonyx_model_save(model: Object, path: *const c_char) -> Object;
    fn sardonyx_model_metadata(
        model: Object,
        key: *const c_char,
        value: *mut *mut c_char,
    ) -> Object;
    fn sardonyx_model_set_metadata(
        model: Object,
        key: *const c_char,
        value: *const c_char,
    ) -> Object;
    fn sardonyx_model_free(model: Object);
    fn sardonyx_model_convert(
        model: Object,
        domain: *const c_char,
        version: u32,
        converted: *mut Object,
    ) -> Object;
    fn sardonyx_session_new(model: Object, threads: usize, session: *mut Object) -> Object;
    fn sardonyx_session_free(session: Object);
    fn sardonyx_session_run(
        session: Object,
        names: *const *const c_char,
        inputs: *const Object,
        input_count: usize,
        outputs: *mut Object,
        output_count: usize,
    ) -> Object;
    fn sardonyx_tensor_new(
        element_type: c_int,
        dims: *const i64,
        rank: usize,
        elements: *const c_void,
        byte_count: usize,
        tensor: *mut Object,
    ) -> Object;
    fn sardonyx_tensor_from_strings(
        dims: *const i64,
        rank: usize,
        strings: *const *const c_char,
        tensor: *mut Object,
    ) -> Object;
    fn sardonyx_tensor_string(tensor: Object, index: usize, text: *mut *mut c_char) -> Object;
    fn sardonyx_tensor_elements(tensor: Object) -> *const c_void;
    fn sardonyx_tensor_count(tensor: Object) -> usize;
    fn sardonyx_tensor_to_dlpack(tensor: Object, array: *mut *mut Managed) -> Object;
    fn sardonyx_tensor_from_dlpack(array: *mut Managed, tensor: *mut Object) -> Object;
    fn sardonyx_tensor_free(tensor: Object);
}

/// Array of DLPack.
#[repr(C)]
struct Managed {
    elements: *mut c_void,
    device: [c_int; 2],
    rank: c_int,
    code: u8,
    bits: u8,
    lanes: u16,
    dims: *const i64,
    strides: *const i64,
    offset: u64,
    context: *mut c_void,
    deleter: unsafe extern "C" fn(*mut Managed),
}

/// Error of a call.
#[derive(Debug)]
struct Failure {
    code: c_int,
    message: String,
}

fn to_text(text: *const c_char) -> String {
    // SAFETY: texts of the library end with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string()
}

fn read(error: Object) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is live until it is freed.
    unsafe {
        let message = to_text(sardonyx_error_message(error));
        let failure = Failure { code: sardonyx_error_code(error), message };
        sardonyx_error_free(error);
        Err(failure)
    }
}

fn parse(text: &str) -> Object {
    let head = "<ir_version: 10, opset_import: [\"\": 21]> ";
    let text = CString::new(format!("{head}{text}")).unwrap();
    let mut model = ptr::null_mut();
    // SAFETY: the text ends with a zero byte.
    read(unsafe { sardonyx_model_from_text(text.as_ptr(), &raw mut model) }).unwrap();
    model
}

fn take_text(text: *mut c_char) -> String {
    let copy = to_text(text);
    // SAFETY: the text is that of a call, and is freed once.
    unsafe { sardonyx_text_free(text) };
    copy
}

#[test]
fn models_are_written_and_read_again() {
    let model = parse("g (float[N] x) => (float[N] y) { y = Relu (x) }");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("relu.onnx");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let (mut bytes, mut count, mut copy) = (ptr::null_mut(), 0, ptr::null_mut());
    let (mut text, mut value) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: all pointers are those of calls or of variables.
    unsafe {
        read(sardonyx_model_set_metadata(model, c"author".as_ptr(), c"me".as_ptr())).unwrap();
        read(sardonyx_model_to_bytes(model, &raw mut bytes, &raw mut count)).unwrap();
        read(sardonyx_model_save(model, path.as_ptr())).unwrap();
        assert_eq!(std::fs::metadata(path.to_str().unwrap()).unwrap().len(), count as u64);
        read(sardonyx_model_from_bytes(bytes, count, &raw mut copy)).unwrap();
        sardonyx_bytes_free(bytes, count);
        read(sardonyx_model_to_text(copy, &raw mut text)).unwrap();
        read(sardonyx_model_metadata(copy, c"author".as_ptr(), &raw mut value)).unwrap();
        assert_eq!(take_text(value), "me");
        read(sardonyx_model_metadata(copy, c"none".as_ptr(), &raw mut value)).unwrap();
        assert!(value.is_null());
        sardonyx_model_free(copy);
        sardonyx_model_free(model);
        assert!(!to_text(sardonyx_version()).is_empty());
    }
    let text = take_text(text);
    assert!(text.contains(".Relu(x)"), "{text}");
}

#[test]
fn errors_have_a_code_and_words() {
    let mut object = ptr::null_mut();
    // SAFETY: the functions check for null pointers, and the others are live.
    unsafe {
        let failure = read(sardonyx_model_open(ptr::null(), &raw mut object)).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (6, "the path is a null pointer"));
        let failure = read(sardonyx_model_open(c"/nowhere".as_ptr(), ptr::null_mut())).unwrap_err();
        assert!(failure.message.contains("place for the result"), "{failure:?}");
        let failure = read(sardonyx_model_open(c"/nowhere".as_ptr(), &raw mut object)).unwrap_err();
        assert_eq!(failure.code, 1, "{failure:?}");
        let failure = read(sardonyx_session_new(ptr::null_mut(), 0, &raw mut object)).unwrap_err();
        assert_eq!(failure.message, "the Model is a null pointer");
        let model = parse("g (float x) => (float y) { y = Foo (x) }");
        let error = sardonyx_session_new(model, 0, &raw mut object);
        assert!(!sardonyx_error_message(error).is_null());
        assert!(sardonyx_error_help(ptr::null_mut()).is_null());
        assert_eq!(read(error).unwrap_err().code, 3);
        let domain = c"".as_ptr();
        let failure = read(sardonyx_model_convert(model, domain, 9999, &raw mut object));
        assert!(matches!(failure.unwrap_err().code, 4 | 6));
        sardonyx_model_free(model);
        sardonyx_model_free(ptr::null_mut());
        let dims = [2i64];
        let failure = read(sardonyx_tensor_new(
            1,
            dims.as_ptr(),
            1,
            [0u8; 4].as_ptr().cast(),
            4,
            &raw mut object,
        ));
        assert_eq!(failure.unwrap_err().code, 6);
        assert!(object.is_null());
    }
}

#[test]
fn strings_run() {
    let model =
        parse("g (string[N] x) => (string[N] y, int64 n) { y = Identity (x) n = Size (x) }");
    let (mut session, mut input) = (ptr::null_mut(), ptr::null_mut());
    let mut outputs = [ptr::null_mut(); 2];
    let mut text = ptr::null_mut();
    // SAFETY: all pointers are those of calls or of variables.
    unsafe {
        read(sardonyx_session_new(model, 1, &raw mut session)).unwrap();
        sardonyx_model_free(model);
        let (dims, strings) = ([2i64], [c"one".as_ptr(), c"two".as_ptr()]);
        let made = sardonyx_tensor_from_strings(dims.as_ptr(), 1, strings.as_ptr(), &raw mut input);
        read(made).unwrap();
        let (names, inputs) = ([c"x".as_ptr()], [input]);
        let (names, inputs) = (names.as_ptr(), inputs.as_ptr());
        let failure =
            read(sardonyx_session_run(session, names, inputs, 1, outputs.as_mut_ptr(), 1));
        assert_eq!(failure.unwrap_err().message, "there is room for 1 outputs of 2");
        read(sardonyx_session_run(session, names, inputs, 1, outputs.as_mut_ptr(), 2)).unwrap();
        read(sardonyx_tensor_string(outputs[0], 1, &raw mut text)).unwrap();
        assert_eq!(take_text(text), "two");
        assert!(sardonyx_tensor_elements(outputs[0]).is_null());
        assert_eq!(*sardonyx_tensor_elements(outputs[1]).cast::<i64>(), 2);
        for tensor in [input, outputs[0], outputs[1]] {
            sardonyx_tensor_free(tensor);
        }
        sardonyx_session_free(session);
    }
}

/// Frees an array of a test and counts it.
unsafe extern "C" fn count_freed(array: *mut Managed) {
    // SAFETY: the context is the counter of the test, and the array is boxed.
    unsafe {
        *(*array).context.cast::<usize>() += 1;
        drop(Box::from_raw(array));
    }
}

#[test]
fn arrays_of_dlpack() {
    let mut elements = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let dims = [3i64, 2];
    let mut freed = 0usize;
    let rows = [2i64, 1];
    let columns = [1i64, 3];
    for (strides, expected) in [
        (ptr::null(), [1f32, 2.0, 3.0, 4.0, 5.0, 6.0]),
        (rows.as_ptr(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        (columns.as_ptr(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
    ] {
        freed = 0;
        let array = Box::into_raw(Box::new(Managed {
            elements: elements.as_mut_ptr().cast(),
            device: [1, 0],
            rank: 2,
            code: 2,
            bits: 32,
            lanes: 1,
            dims: dims.as_ptr(),
            strides,
            offset: 0,
            context: (&raw mut freed).cast(),
            deleter: count_freed,
        }));
        let mut tensor = ptr::null_mut();
        let mut export: *mut Managed = ptr::null_mut();
        // SAFETY: all pointers are those of calls or of variables.
        unsafe {
            (*array).lanes = 4;
            assert_eq!(
                read(sardonyx_tensor_from_dlpack(array, &raw mut tensor)).unwrap_err().code,
                6
            );
            (*array).lanes = 1;
            read(sardonyx_tensor_from_dlpack(array, &raw mut tensor)).unwrap();
            assert_eq!(sardonyx_tensor_count(tensor), 6);
            read(sardonyx_tensor_to_dlpack(tensor, &raw mut export)).unwrap();
            sardonyx_tensor_free(tensor);
            let read = std::slice::from_raw_parts((*export).elements.cast::<f32>(), 6);
            assert_eq!(read, expected);
            assert_eq!(std::slice::from_raw_parts((*export).dims, 2), dims);
            ((*export).deleter)(export);
        }
        assert_eq!(freed, 1);
    }
    assert_eq!(freed, 1);
}
