//! The table as a client sees it: functions by name, with the arguments of the C header.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use sardonyx_capi::{ENTRIES, NEWEST_VERSION, api_base};

/// Pointer to an object of the library, or null.
pub(crate) type Object = *mut c_void;

/// Number of the element type `float`.
pub(crate) const FLOAT: c_int = 1;

/// Number of the element type `int64`.
pub(crate) const INT64: c_int = 7;

/// Number of the element type `string`.
pub(crate) const STRING: c_int = 8;

/// Address of a function of the table.
pub(crate) fn find(name: &str) -> *const () {
    let table = (api_base().get_api)(NEWEST_VERSION).cast::<*const ()>();
    let index = ENTRIES.iter().position(|entry| entry.name == name).expect(name);
    // SAFETY: the table has one address for each entry.
    unsafe { *table.add(index) }
}

/// Calls a function of the table. Each argument has its type in the C header.
macro_rules! call {
    ($name:ident($($argument:expr => $ty:ty),* $(,)?) -> $result:ty) => {{
        let address = $crate::interface::find(stringify!($name));
        // SAFETY: the types are those of the C header.
        let function = unsafe {
            std::mem::transmute::<*const (), unsafe extern "C" fn($($ty),*) -> $result>(address)
        };
        // SAFETY: the tests pass what the C header demands, or null.
        unsafe { function($($argument),*) }
    }};
    ($name:ident($($argument:expr => $ty:ty),* $(,)?)) => {
        $crate::interface::call!($name($($argument => $ty),*) -> $crate::interface::Object)
    };
}
pub(crate) use call;

/// Error of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) message: String,
}

/// Reads a status and frees it.
pub(crate) fn read(status: Object) -> Result<(), Failure> {
    if status.is_null() {
        return Ok(());
    }
    let code = call!(GetErrorCode(status => Object) -> c_int);
    let message = to_text(call!(GetErrorMessage(status => Object) -> *const c_char));
    call!(ReleaseStatus(status => Object) -> ());
    Err(Failure { code, message })
}

/// Demands that a call succeeded.
#[track_caller]
pub(crate) fn check(status: Object) {
    if let Err(failure) = read(status) {
        panic!("code {}: {}", failure.code, failure.message);
    }
}

/// Demands that a call failed with this code and these words in its message.
#[track_caller]
pub(crate) fn demand_failure(status: Object, code: c_int, words: &str) {
    let failure = read(status).expect_err(words);
    assert_eq!(failure.code, code, "{failure:?}");
    assert!(failure.message.contains(words), "{failure:?}");
}

/// Copies a text of the library.
pub(crate) fn to_text(text: *const c_char) -> String {
    // SAFETY: texts of the library end with a zero byte.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string()
}

/// Returns the allocator of all callers.
pub(crate) fn allocator() -> Object {
    let mut allocator = ptr::null_mut();
    check(call!(GetAllocatorWithDefaultOptions(&mut allocator => *mut Object)));
    allocator
}

/// Copies a text of the default allocator and frees it.
pub(crate) fn take_text(text: *mut c_char) -> String {
    let copy = to_text(text);
    check(call!(AllocatorFree(allocator() => Object, text => *mut c_char)));
    copy
}

/// Environment, which is released at the end.
pub(crate) struct Environment(pub(crate) Object);

impl Environment {
    pub(crate) fn new() -> Environment {
        let mut env = ptr::null_mut();
        check(call!(CreateEnv(
            3 => c_int, c"test".as_ptr() => *const c_char, &mut env => *mut Object
        )));
        Environment(env)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        call!(ReleaseEnv(self.0 => Object) -> ());
    }
}

/// Session of a model in the notation, which is released at the end.
pub(crate) struct Session(pub(crate) Object, pub(crate) Environment);

impl Session {
    /// Opens a graph with the operator sets that the tests use.
    pub(crate) fn new(graph: &str) -> Session {
        Session::with_options(graph, ptr::null_mut()).unwrap()
    }

    pub(crate) fn with_options(graph: &str, options: Object) -> Result<Session, Failure> {
        Session::from_bytes(&to_bytes(graph), options)
    }

    pub(crate) fn from_bytes(bytes: &[u8], options: Object) -> Result<Session, Failure> {
        let env = Environment::new();
        let mut session = ptr::null_mut();
        let status = call!(CreateSessionFromArray(
            env.0 => Object, bytes.as_ptr() => *const u8, bytes.len() => usize,
            options => Object, &mut session => *mut Object
        ));
        read(status).map(|()| Session(session, env))
    }

    /// Runs the session and returns a new value for each output.
    pub(crate) fn run(
        &self,
        inputs: &[(&CStr, Object)],
        outputs: &[&CStr],
    ) -> Result<Vec<Value>, Failure> {
        let mut values = vec![ptr::null_mut(); outputs.len()];
        read(self.start_run(ptr::null_mut(), inputs, outputs, &mut values))?;
        Ok(values.into_iter().map(Value).collect())
    }

    pub(crate) fn start_run(
        &self,
        options: Object,
        inputs: &[(&CStr, Object)],
        outputs: &[&CStr],
        values: &mut [Object],
    ) -> Object {
        let names: Vec<*const c_char> = inputs.iter().map(|(name, _)| name.as_ptr()).collect();
        let given: Vec<Object> = inputs.iter().map(|(_, value)| *value).collect();
        let wanted: Vec<*const c_char> = outputs.iter().map(|name| name.as_ptr()).collect();
        call!(Run(
            self.0 => Object, options => Object,
            names.as_ptr() => *const *const c_char, given.as_ptr() => *const Object,
            inputs.len() => usize,
            wanted.as_ptr() => *const *const c_char, outputs.len() => usize,
            values.as_mut_ptr() => *mut Object
        ))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        call!(ReleaseSession(self.0 => Object) -> ());
    }
}

/// Encodes a model in the notation.
pub(crate) fn to_bytes(graph: &str) -> Vec<u8> {
    let head = "<ir_version: 10, opset_import: [\"\": 21, \"ai.onnx.ml\": 3], \
        producer_name: \"tests\", producer_version: \"1\", model_version: 7, \
        domain: \"example.org\", doc_string: \"about\", metadata_props: [\"author\": \"me\"]>";
    sardonyx::Model::from_text(&format!("{head} {graph}")).unwrap().to_bytes()
}

/// Value, which is released at the end.
pub(crate) struct Value(pub(crate) Object);

impl Drop for Value {
    fn drop(&mut self) {
        call!(ReleaseValue(self.0 => Object) -> ());
    }
}

impl Value {
    /// Makes a tensor in memory of the library.
    pub(crate) fn new(element: c_int, dims: &[i64]) -> Value {
        let mut value = ptr::null_mut();
        check(call!(CreateTensorAsOrtValue(
            allocator() => Object, dims.as_ptr() => *const i64, dims.len() => usize,
            element => c_int, &mut value => *mut Object
        )));
        Value(value)
    }

    /// Makes a tensor over memory of the caller.
    pub(crate) fn borrow<T>(element: c_int, dims: &[i64], elements: &mut [T]) -> Value {
        let mut value = ptr::null_mut();
        let info = cpu();
        check(call!(CreateTensorWithDataAsOrtValue(
            info => Object, elements.as_mut_ptr() => *mut T, size_of_val(elements) => usize,
            dims.as_ptr() => *const i64, dims.len() => usize, element => c_int,
            &mut value => *mut Object
        )));
        call!(ReleaseMemoryInfo(info => Object) -> ());
        Value(value)
    }

    /// Makes a tensor of floats in memory of the library.
    pub(crate) fn floats(elements: &[f32]) -> Value {
        let value = Value::new(FLOAT, &[i64::try_from(elements.len()).unwrap()]);
        value.write(elements);
        value
    }

    /// Makes a tensor of strings.
    pub(crate) fn strings(strings: &[&CStr]) -> Value {
        let value = Value::new(STRING, &[i64::try_from(strings.len()).unwrap()]);
        let texts: Vec<*const c_char> = strings.iter().map(|string| string.as_ptr()).collect();
        check(call!(FillStringTensor(
            value.0 => Object, texts.as_ptr() => *const *const c_char, texts.len() => usize
        )));
        value
    }

    /// Address of the elements.
    pub(crate) fn data<T>(&self) -> *mut T {
        let mut data = ptr::null_mut();
        check(call!(GetTensorMutableData(self.0 => Object, &mut data => *mut *mut T)));
        data
    }

    /// Writes the first elements.
    pub(crate) fn write<T: Copy>(&self, elements: &[T]) {
        // SAFETY: the tests write no more elements than the tensor has.
        unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), self.data(), elements.len()) };
    }

    /// Copies the elements.
    pub(crate) fn read<T: Copy>(&self) -> Vec<T> {
        let mut size = 0;
        check(call!(GetTensorSizeInBytes(self.0 => Object, &mut size => *mut usize)));
        // SAFETY: the tensor has that many bytes, and the tests name the type of its elements.
        unsafe { std::slice::from_raw_parts(self.data(), size / size_of::<T>()) }.to_vec()
    }

    /// Copies the strings.
    pub(crate) fn read_strings(&self) -> Vec<String> {
        let (mut total, mut count) = (0, 0);
        check(call!(GetStringTensorDataLength(self.0 => Object, &mut total => *mut usize)));
        let info = self.info();
        check(call!(GetTensorShapeElementCount(info => Object, &mut count => *mut usize)));
        call!(ReleaseTensorTypeAndShapeInfo(info => Object) -> ());
        let (mut bytes, mut starts) = (vec![0u8; total], vec![0usize; count]);
        check(call!(GetStringTensorContent(
            self.0 => Object, bytes.as_mut_ptr() => *mut u8, total => usize,
            starts.as_mut_ptr() => *mut usize, count => usize
        )));
        let ends = starts.iter().skip(1).chain([&total]);
        let parts = starts.iter().zip(ends);
        parts.map(|(start, end)| String::from_utf8(bytes[*start..*end].to_vec()).unwrap()).collect()
    }

    /// Describes type and shape; the caller releases the description.
    pub(crate) fn info(&self) -> Object {
        let mut info = ptr::null_mut();
        check(call!(GetTensorTypeAndShape(self.0 => Object, &mut info => *mut Object)));
        info
    }

    /// Returns element type and shape.
    pub(crate) fn shape(&self) -> (c_int, Vec<i64>) {
        let info = self.info();
        let shape = read_shape(info);
        call!(ReleaseTensorTypeAndShapeInfo(info => Object) -> ());
        shape
    }
}

/// Reads the element type and the shape of a description.
pub(crate) fn read_shape(info: Object) -> (c_int, Vec<i64>) {
    let (mut element, mut rank) = (0, 0);
    check(call!(GetTensorElementType(info => Object, &mut element => *mut c_int)));
    check(call!(GetDimensionsCount(info => Object, &mut rank => *mut usize)));
    let mut dims = vec![0; rank];
    check(call!(GetDimensions(
        info => Object, dims.as_mut_ptr() => *mut i64, rank => usize
    )));
    (element, dims)
}

/// Describes the memory of the CPU; the caller releases the description.
pub(crate) fn cpu() -> Object {
    let mut info = ptr::null_mut();
    check(call!(CreateCpuMemoryInfo(0 => c_int, 0 => c_int, &mut info => *mut Object)));
    info
}
