//! Sessions: opening, describing and running them, errors, threads and profiles.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::mpsc::{Sender, channel};

use crate::interface::{
    Environment, FLOAT, Object, Session, Value, allocator, call, check, demand_failure, read_shape,
    take_text, to_bytes,
};

const RELU: &str = "relu (float[N, 2] x) => (float[N, 2] y) { y = Relu (x) }";

/// A loop without end.
const ENDLESS: &str = "endless (int64 n, float x) => (float y) {
    cond = Constant <value = bool {1}> ()
    y = Loop (n, cond, x) <body = b (int64 i, bool c, float v) => (bool d, float w) {
        d = Identity (c) w = Add (v, v)
    }>
}";

fn floats(dims: &[i64], elements: &[f32]) -> Value {
    let value = Value::new(FLOAT, dims);
    value.write(elements);
    value
}

#[test]
fn a_session_describes_and_runs_its_model() {
    let session = Session::new(
        "g (float[N, 2] x, float[2] d = {1, 2}) => (float[N, 2] y) {
        t = Relu (x) y = Add (t, d)
    }",
    );
    let counts = |name: &str| {
        let mut count = 0usize;
        let status = match name {
            "inputs" => call!(SessionGetInputCount(session.0 => Object, &mut count => *mut usize)),
            "outputs" => {
                call!(SessionGetOutputCount(session.0 => Object, &mut count => *mut usize))
            }
            _ => call!(SessionGetOverridableInitializerCount(
                session.0 => Object, &mut count => *mut usize
            )),
        };
        check(status);
        count
    };
    assert_eq!((counts("inputs"), counts("outputs"), counts("overridable")), (1, 1, 1));
    let mut name = ptr::null_mut();
    check(call!(SessionGetInputName(
        session.0 => Object, 0 => usize, allocator() => Object, &mut name => *mut *mut c_char
    )));
    assert_eq!(take_text(name), "x");
    let mut info = ptr::null_mut();
    check(call!(SessionGetInputTypeInfo(
        session.0 => Object, 0 => usize, &mut info => *mut Object
    )));
    let mut tensor = ptr::null_mut();
    check(call!(CastTypeInfoToTensorInfo(info => Object, &mut tensor => *mut Object)));
    assert_eq!(read_shape(tensor), (FLOAT, vec![-1, 2]));
    let mut names = [ptr::null::<c_char>(); 2];
    check(call!(GetSymbolicDimensions(
        tensor => Object, names.as_mut_ptr() => *mut *const c_char, 2 => usize
    )));
    assert_eq!(names.map(crate::interface::to_text), ["N", ""]);
    call!(ReleaseTypeInfo(info => Object) -> ());

    let x = floats(&[1, 2], &[-1.0, 5.0]);
    let outputs = session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [1.0, 7.0]);
    assert_eq!(outputs[0].shape(), (FLOAT, vec![1, 2]));
    let d = floats(&[2], &[10.0, 20.0]);
    let outputs = session.run(&[(c"x", x.0), (c"d", d.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [10.0, 25.0]);
}

#[test]
fn outputs_are_written_to_given_values() {
    let session = Session::new(RELU);
    let x = floats(&[2, 2], &[-1.0, 2.0, -3.0, 4.0]);
    let mut memory = [9f32; 4];
    let y = Value::borrow(FLOAT, &[2, 2], &mut memory);
    let mut values = [y.0];
    check(session.start_run(ptr::null_mut(), &[(c"x", x.0)], &[c"y"], &mut values));
    assert_eq!(values[0], y.0);
    assert_eq!(y.read::<f32>(), [0.0, 2.0, 0.0, 4.0]);
    // The input as its own output.
    let mut values = [x.0];
    check(session.start_run(ptr::null_mut(), &[(c"x", x.0)], &[c"y"], &mut values));
    assert_eq!(x.read::<f32>(), [0.0, 2.0, 0.0, 4.0]);
    // Memory without alignment, and without elements.
    let mut bytes = [0u8; 17];
    let unaligned = Value::borrow(FLOAT, &[2, 2], &mut bytes[1..]);
    let x = floats(&[2, 2], &[-1.0, 2.0, -3.0, 4.0]);
    check(session.start_run(ptr::null_mut(), &[(c"x", x.0)], &[c"y"], &mut [unaligned.0]));
    drop(unaligned);
    assert_eq!(bytes[5..9], 2f32.to_ne_bytes());
    let (none, into) = (Value::new(FLOAT, &[0, 2]), Value::new(FLOAT, &[0, 2]));
    check(session.start_run(ptr::null_mut(), &[(c"x", none.0)], &[c"y"], &mut [into.0]));
    let small = Value::new(FLOAT, &[1, 2]);
    let status = session.start_run(ptr::null_mut(), &[(c"x", x.0)], &[c"y"], &mut [small.0]);
    demand_failure(status, 2, "the output is float[2, 2], but the given value is float[1, 2]");
    drop(y);
    assert_eq!(memory, [0.0, 2.0, 0.0, 4.0]);
}

#[test]
fn an_output_twice_and_an_output_that_is_the_input() {
    let session = Session::new(
        "g (float[N] x) => (float[N] y, float[N] z) {
        y = Identity (x) z = Neg (x)
    }",
    );
    let mut memory = [1f32, 2.0];
    let x = Value::borrow(FLOAT, &[2], &mut memory);
    let outputs = session.run(&[(c"x", x.0)], &[c"y", c"z", c"y"]).unwrap();
    drop(x);
    memory[0] = 100.0;
    // Outputs own their memory, also one that the model takes from an input.
    assert_eq!(outputs[0].read::<f32>(), [1.0, 2.0]);
    assert_eq!(outputs[1].read::<f32>(), [-1.0, -2.0]);
    assert_eq!(outputs[2].read::<f32>(), [1.0, 2.0]);
    assert_eq!(memory[0], 100.0);
}

#[test]
fn runs_that_cannot_be() {
    let session = Session::new(RELU);
    let x = floats(&[1, 2], &[0.0; 2]);
    let other = floats(&[1, 3], &[0.0; 3]);
    let strings = Value::strings(&[c"a"]);
    for (name, value, output, words) in [
        (c"q", x.0, c"y", "'q'"),
        (c"x", other.0, c"y", "x"),
        (c"x", strings.0, c"y", "string"),
        (c"x", x.0, c"q", "the model has no output 'q'; it has 'y'"),
    ] {
        let Err(failure) = session.run(&[(name, value)], &[output]) else { panic!("{words}") };
        assert_eq!(failure.code, 2, "{failure:?}");
        assert!(failure.message.contains(words), "{failure:?}");
    }
    let Err(failure) = session.run(&[], &[c"y"]) else { panic!() };
    assert!(failure.message.contains("Required inputs (['x']) are missing"), "{failure:?}");
    let status = session.start_run(
        ptr::null_mut(),
        &[(c"x", ptr::null_mut())],
        &[c"y"],
        &mut [ptr::null_mut()],
    );
    demand_failure(status, 2, "the OrtValue is a null pointer");
}

#[test]
fn sizes_of_one_name_may_differ() {
    let session = Session::new(
        "g (float[N] a, float[N] b) => (float[M] c) {
        c = Concat <axis = 0> (a, b)
    }",
    );
    let (a, b) = (floats(&[1], &[1.0]), floats(&[2], &[2.0, 3.0]));
    let outputs = session.run(&[(c"a", a.0), (c"b", b.0)], &[c"c"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [1.0, 2.0, 3.0]);
}

#[test]
fn models_that_cannot_be_opened() {
    let env = Environment::new();
    let mut session = ptr::null_mut();
    let mut open = |bytes: &[u8]| {
        call!(CreateSessionFromArray(
            env.0 => Object, bytes.as_ptr() => *const u8, bytes.len() => usize,
            ptr::null_mut() => Object, &mut session => *mut Object
        ))
    };
    demand_failure(open(b"\x07garbage"), 7, "");
    demand_failure(open(b"\x18\0\0\0ORTM\0\0\0\0"), 7, ".ort file");
    demand_failure(open(&to_bytes("g (float x) => (float y) { y = Foo (x) }")), 10, "Foo");
    assert!(session.is_null());
    let path = c"/nowhere/model.onnx";
    let status = call!(CreateSession(
        env.0 => Object, path.as_ptr() => *const c_char, ptr::null_mut() => Object,
        &mut session => *mut Object
    ));
    demand_failure(status, 3, "/nowhere/model.onnx");
}

#[test]
fn a_model_from_a_file_with_its_metadata() {
    let directory = std::env::temp_dir().join(format!("sardonyx-capi-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("relu.onnx");
    std::fs::write(&path, to_bytes(RELU)).unwrap();
    let env = Environment::new();
    let text = CString::new(path.to_str().unwrap()).unwrap();
    let mut session = ptr::null_mut();
    check(call!(CreateSession(
        env.0 => Object, text.as_ptr() => *const c_char, ptr::null_mut() => Object,
        &mut session => *mut Object
    )));
    let session = Session(session, env);
    let mut metadata = ptr::null_mut();
    check(call!(SessionGetModelMetadata(session.0 => Object, &mut metadata => *mut Object)));
    macro_rules! text {
        ($name:ident) => {{
            let mut text = ptr::null_mut();
            check(call!($name(
                metadata => Object, allocator() => Object, &mut text => *mut *mut c_char
            )));
            take_text(text)
        }};
    }
    assert_eq!(text!(ModelMetadataGetProducerName), "tests");
    assert_eq!(text!(ModelMetadataGetGraphName), "relu");
    assert_eq!(text!(ModelMetadataGetDomain), "example.org");
    assert_eq!(text!(ModelMetadataGetDescription), "about");
    assert_eq!(text!(ModelMetadataGetGraphDescription), "");
    let mut version = 0;
    check(call!(ModelMetadataGetVersion(metadata => Object, &mut version => *mut i64)));
    assert_eq!(version, 7);
    let (mut keys, mut count) = (ptr::null_mut::<*mut c_char>(), 0);
    check(call!(ModelMetadataGetCustomMetadataMapKeys(
        metadata => Object, allocator() => Object, &mut keys => *mut *mut *mut c_char,
        &mut count => *mut i64
    )));
    assert_eq!(count, 1);
    // SAFETY: the library has returned one key.
    assert_eq!(take_text(unsafe { *keys }), "author");
    check(call!(AllocatorFree(allocator() => Object, keys => *mut *mut c_char)));
    let mut value = ptr::null_mut();
    check(call!(ModelMetadataLookupCustomMetadataMap(
        metadata => Object, allocator() => Object, c"author".as_ptr() => *const c_char,
        &mut value => *mut *mut c_char
    )));
    assert_eq!(take_text(value), "me");
    check(call!(ModelMetadataLookupCustomMetadataMap(
        metadata => Object, allocator() => Object, c"other".as_ptr() => *const c_char,
        &mut value => *mut *mut c_char
    )));
    assert!(value.is_null());
    call!(ReleaseModelMetadata(metadata => Object) -> ());
    drop(session);
    std::fs::remove_dir_all(&directory).unwrap();
}

extern "C" fn tell(sender: *mut c_void, outputs: *mut Object, count: usize, status: Object) {
    // A sender on the stack of the test would be used after it is dropped: the receiver goes on
    // once the message is there, before `send` returns.
    // SAFETY: each run gets a box of its own and calls back once.
    let sender = unsafe { Box::from_raw(sender.cast::<Sender<(usize, usize, bool)>>()) };
    sender.send((outputs.addr(), count, status.is_null())).unwrap();
    if !status.is_null() {
        call!(ReleaseStatus(status => Object) -> ());
    }
}

#[test]
fn a_run_in_a_thread_of_its_own() {
    let session = Session::new(RELU);
    let (sender, receiver) = channel::<(usize, usize, bool)>();
    let (x, bad) = (floats(&[1, 2], &[-1.0, 2.0]), floats(&[1, 3], &[0.0; 3]));
    for (input, succeeds) in [(x.0, true), (bad.0, false)] {
        let names = [c"x".as_ptr()];
        let wanted = [c"y".as_ptr()];
        let mut outputs = [ptr::null_mut()];
        let inputs = [input];
        check(call!(RunAsync(
            session.0 => Object, ptr::null_mut() => Object,
            names.as_ptr() => *const *const c_char, inputs.as_ptr() => *const Object, 1 => usize,
            wanted.as_ptr() => *const *const c_char, 1 => usize,
            outputs.as_mut_ptr() => *mut Object,
            tell => extern "C" fn(*mut c_void, *mut Object, usize, Object),
            Box::into_raw(Box::new(sender.clone())).cast() => *mut c_void
        )));
        assert_eq!(receiver.recv().unwrap(), (outputs.as_ptr().addr(), 1, succeeds));
        // SAFETY: the thread has written the output.
        let output = unsafe { outputs.as_ptr().read_volatile() };
        assert_eq!(output.is_null(), !succeeds);
        if succeeds {
            assert_eq!(Value(output).read::<f32>(), [0.0, 2.0]);
        }
    }
    let status = call!(RunAsync(
        session.0 => Object, ptr::null_mut() => Object, ptr::null() => *const *const c_char,
        ptr::null() => *const Object, 0 => usize, ptr::null() => *const *const c_char, 0 => usize,
        ptr::null_mut() => *mut Object, ptr::null() => *const (), ptr::null_mut() => *mut c_void
    ));
    demand_failure(status, 2, "the callback is a null pointer");
}

#[test]
fn a_run_is_terminated() {
    let session = Session::new(ENDLESS);
    let mut options = ptr::null_mut();
    check(call!(CreateRunOptions(&mut options => *mut Object)));
    let n = Value::new(7, &[]);
    n.write(&[i64::MAX]);
    let x = Value::new(FLOAT, &[]);
    let address = options.addr();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let options: Object = ptr::without_provenance_mut(address);
        check(call!(RunOptionsSetTerminate(options => Object)));
    });
    let status =
        session.start_run(options, &[(c"n", n.0), (c"x", x.0)], &[c"y"], &mut [ptr::null_mut()]);
    stopper.join().unwrap();
    demand_failure(status, 1, "stop");
    check(call!(RunOptionsUnsetTerminate(options => Object)));
    n.write(&[3i64]);
    let mut outputs = [ptr::null_mut()];
    check(session.start_run(options, &[(c"n", n.0), (c"x", x.0)], &[c"y"], &mut outputs));
    assert_eq!(Value(outputs[0]).read::<f32>(), [0.0]);
    call!(ReleaseRunOptions(options => Object) -> ());
}

#[test]
fn sessions_share_the_threads_of_an_environment() {
    let mut threading = ptr::null_mut();
    check(call!(CreateThreadingOptions(&mut threading => *mut Object)));
    check(call!(SetGlobalIntraOpNumThreads(threading => Object, 2 => c_int)));
    let mut env = ptr::null_mut();
    check(call!(CreateEnvWithGlobalThreadPools(
        3 => c_int, c"t".as_ptr() => *const c_char, threading => Object, &mut env => *mut Object
    )));
    call!(ReleaseThreadingOptions(threading => Object) -> ());
    let mut options = ptr::null_mut();
    check(call!(CreateSessionOptions(&mut options => *mut Object)));
    check(call!(DisablePerSessionThreads(options => Object)));
    let bytes = to_bytes(RELU);
    let open = |env: Object| {
        let mut session = ptr::null_mut();
        let status = call!(CreateSessionFromArray(
            env => Object, bytes.as_ptr() => *const u8, bytes.len() => usize,
            options => Object, &mut session => *mut Object
        ));
        (status, session)
    };
    let (status, session) = open(env);
    check(status);
    let session = Session(session, Environment(env));
    let x = floats(&[1, 2], &[1.0, -1.0]);
    let outputs = session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [1.0, 0.0]);
    let plain = Environment::new();
    demand_failure(open(plain.0).0, 2, "make it with CreateEnvWithGlobalThreadPools");
    call!(ReleaseSessionOptions(options => Object) -> ());
}

#[test]
fn empty_objects_have_addresses_of_their_own() {
    let (mut sizes, mut one, mut other) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    check(call!(CreateArenaCfg(
        0 => usize, 0 => c_int, 0 => c_int, 0 => c_int, &mut sizes => *mut Object
    )));
    check(call!(CreatePrepackedWeightsContainer(&mut one => *mut Object)));
    check(call!(CreatePrepackedWeightsContainer(&mut other => *mut Object)));
    assert!(one != other && sizes != one && sizes != other);
    call!(ReleaseArenaCfg(sizes => Object) -> ());
    call!(ReleasePrepackedWeightsContainer(one => Object) -> ());
    let (env, bytes) = (Environment::new(), to_bytes(RELU));
    let mut session = ptr::null_mut();
    check(call!(CreateSessionFromArrayWithPrepackedWeightsContainer(
        env.0 => Object, bytes.as_ptr() => *const u8, bytes.len() => usize,
        ptr::null_mut() => Object, other => Object, &mut session => *mut Object
    )));
    call!(ReleasePrepackedWeightsContainer(other => Object) -> ());
    drop(Session(session, env));
}

#[test]
fn a_profile_is_written() {
    let directory = std::env::temp_dir().join(format!("sardonyx-capi-p-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let prefix = CString::new(directory.join("p").to_str().unwrap()).unwrap();
    let mut options = ptr::null_mut();
    check(call!(CreateSessionOptions(&mut options => *mut Object)));
    check(call!(EnableProfiling(options => Object, prefix.as_ptr() => *const c_char)));
    let session = Session::with_options(RELU, options).unwrap();
    let x = floats(&[1, 2], &[1.0, -1.0]);
    session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
    let mut name = ptr::null_mut();
    check(call!(SessionEndProfiling(
        session.0 => Object, allocator() => Object, &mut name => *mut *mut c_char
    )));
    let content = std::fs::read_to_string(take_text(name)).unwrap();
    assert!(content.contains("Relu") && content.contains("model_run"), "{content}");
    call!(ReleaseSessionOptions(options => Object) -> ());
    std::fs::remove_dir_all(&directory).unwrap();
}
