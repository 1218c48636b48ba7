//! Options of sessions and runs, the log, and weights from outside.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Mutex;

use crate::interface::{
    Object, STRING, Session, Value, call, check, demand_failure, read, to_bytes, to_text,
};

struct Options(Object);

impl Drop for Options {
    fn drop(&mut self) {
        call!(ReleaseSessionOptions(self.0 => Object) -> ());
    }
}

impl Options {
    fn new() -> Options {
        let mut options = ptr::null_mut();
        check(call!(CreateSessionOptions(&mut options => *mut Object)));
        Options(options)
    }

    fn add_entry(&self, key: &CStr, value: &CStr) {
        check(call!(AddSessionConfigEntry(
            self.0 => Object, key.as_ptr() => *const c_char, value.as_ptr() => *const c_char
        )));
    }
}

const WEIGHTS: &str = "g (float[N] x) => (float[N] y)
    <float[2] w = [\"location\": \"w.bin\", \"length\": \"8\"], float[2] v = {10, 20}>
    { t = Mul (x, w) y = Add (t, v) }";

#[test]
fn entries_are_read_back() {
    let options = Options::new();
    options.add_entry(c"a.b", c"value");
    let get = |place: *mut c_char, size: &mut usize| {
        call!(GetSessionConfigEntry(
            options.0 => Object, c"a.b".as_ptr() => *const c_char, place => *mut c_char,
            size => *mut usize
        ))
    };
    let mut size = 0;
    check(get(ptr::null_mut(), &mut size));
    assert_eq!(size, 6);
    let mut text = [0 as c_char; 6];
    let mut small = 5;
    demand_failure(get(text.as_mut_ptr(), &mut small), 2, "has 6 bytes");
    assert_eq!(small, 6);
    check(get(text.as_mut_ptr(), &mut size));
    assert_eq!(to_text(text.as_ptr()), "value");
    let has = |options: &Options, key: &CStr| {
        let mut found = -1;
        check(call!(HasSessionConfigEntry(
            options.0 => Object, key.as_ptr() => *const c_char, &mut found => *mut c_int
        )));
        found == 1
    };
    let mut copy = ptr::null_mut();
    check(call!(CloneSessionOptions(options.0 => Object, &mut copy => *mut Object)));
    let copy = Options(copy);
    assert!(has(&options, c"a.b") && has(&copy, c"a.b") && !has(&copy, c"c"));
    let mut pairs = ptr::null_mut();
    check(call!(GetSessionOptionsConfigEntries(
        options.0 => Object, &mut pairs => *mut Object
    )));
    let value = call!(GetKeyValue(
        pairs => Object, c"a.b".as_ptr() => *const c_char
    ) -> *const c_char);
    assert_eq!(to_text(value), "value");
    call!(AddKeyValuePair(
        pairs => Object, c"k".as_ptr() => *const c_char, c"v".as_ptr() => *const c_char
    ) -> ());
    let (mut keys, mut values, mut count) =
        (ptr::null::<*const c_char>(), ptr::null::<*const c_char>(), 0);
    call!(GetKeyValuePairs(
        pairs => Object, &mut keys => *mut *const *const c_char,
        &mut values => *mut *const *const c_char, &mut count => *mut usize
    ) -> ());
    assert_eq!(count, 2);
    // SAFETY: the library has returned two keys and two values.
    let last = unsafe { (*keys.add(1), *values.add(1)) };
    assert_eq!((to_text(last.0), to_text(last.1)), ("k".into(), "v".into()));
    call!(RemoveKeyValuePair(pairs => Object, c"k".as_ptr() => *const c_char) -> ());
    let value = call!(GetKeyValue(
        pairs => Object, c"k".as_ptr() => *const c_char
    ) -> *const c_char);
    assert!(value.is_null());
    call!(ReleaseKeyValuePairs(pairs => Object) -> ());
}

#[test]
fn options_are_accepted_or_refused() {
    let options = Options::new();
    check(call!(SetIntraOpNumThreads(options.0 => Object, 2 => c_int)));
    check(call!(SetInterOpNumThreads(options.0 => Object, 2 => c_int)));
    check(call!(SetSessionGraphOptimizationLevel(options.0 => Object, 99 => c_int)));
    demand_failure(
        call!(SetSessionGraphOptimizationLevel(options.0 => Object, 98 => c_int)),
        2,
        "graph_optimization_level",
    );
    check(call!(SetSessionExecutionMode(options.0 => Object, 1 => c_int)));
    let mut mode = 0;
    check(call!(GetSessionExecutionMode(options.0 => Object, &mut mode => *mut c_int)));
    assert_eq!(mode, 1);
    check(call!(DisableMemPattern(options.0 => Object)));
    check(call!(DisableCpuMemArena(options.0 => Object)));
    let append = |name: &CStr| {
        call!(SessionOptionsAppendExecutionProvider(
            options.0 => Object, name.as_ptr() => *const c_char, ptr::null() => *const c_void,
            ptr::null() => *const c_void, 0 => usize
        ))
    };
    check(append(c"CPU"));
    demand_failure(append(c"XNNPACK"), 9, "XNNPACK");
    let mut library = ptr::null_mut::<c_void>();
    demand_failure(
        call!(RegisterCustomOpsLibrary(
            options.0 => Object, c"own.so".as_ptr() => *const c_char,
            &mut library => *mut *mut c_void
        )),
        9,
        "own.so",
    );
    let mut api = ptr::null::<c_void>();
    demand_failure(
        call!(GetExecutionProviderApi(
            c"DML".as_ptr() => *const c_char, 0 => u32, &mut api => *mut *const c_void
        )),
        9,
        "DML",
    );
    check(call!(SessionOptionsSetLoadCancellationFlag(options.0 => Object, true => bool)));
    let graph = "g (float x) => (float y) { y = Relu (x) }";
    assert_eq!(Session::with_options(graph, options.0).err().unwrap().code, 12);
    check(call!(SessionOptionsSetLoadCancellationFlag(options.0 => Object, false => bool)));
    Session::with_options(graph, options.0).unwrap();
}

#[test]
fn sizes_are_fixed_by_name() {
    let options = Options::new();
    check(call!(AddFreeDimensionOverrideByName(
        options.0 => Object, c"N".as_ptr() => *const c_char, 3 => i64
    )));
    let graph = "g (float[N] x) => (float[N] y) { y = Relu (x) }";
    let session = Session::with_options(graph, options.0).unwrap();
    session.run(&[(c"x", Value::floats(&[1.0; 3]).0)], &[c"y"]).unwrap();
    assert!(session.run(&[(c"x", Value::floats(&[1.0; 2]).0)], &[c"y"]).is_err());
    demand_failure(
        call!(AddFreeDimensionOverrideByName(
            options.0 => Object, c"N".as_ptr() => *const c_char, -1 => i64
        )),
        2,
        "negative",
    );
}

#[test]
fn weights_come_from_the_caller() {
    let x = Value::floats(&[1.0, 1.0]);
    let run = |options: &Options| {
        let session = Session::with_options(WEIGHTS, options.0)?;
        let outputs = session.run(&[(c"x", x.0)], &[c"y"])?;
        Ok::<_, crate::interface::Failure>(outputs[0].read::<f32>())
    };
    let options = Options::new();
    let w = Value::floats(&[5.0, 6.0]);
    let add = |options: &Options, name: &CStr, value: Object| {
        call!(AddInitializer(
            options.0 => Object, name.as_ptr() => *const c_char, value => Object
        ))
    };
    check(add(&options, c"w", w.0));
    demand_failure(add(&options, c"w", w.0), 2, "was given before");
    assert_eq!(run(&options).unwrap(), [15.0, 26.0]);

    let options = Options::new();
    let (names, values) = ([c"w".as_ptr()], [w.0]);
    check(call!(AddExternalInitializers(
        options.0 => Object, names.as_ptr() => *const *const c_char,
        values.as_ptr() => *const Object, 1 => usize
    )));
    w.write(&[0f32, 0.0]);
    assert_eq!(run(&options).unwrap(), [15.0, 26.0]);

    let options = Options::new();
    let mut content = [1f32, 2.0];
    let (names, contents) = ([c"w.bin".as_ptr()], [content.as_mut_ptr()]);
    check(call!(AddExternalInitializersFromFilesInMemory(
        options.0 => Object, names.as_ptr() => *const *const c_char,
        contents.as_ptr() => *const *mut f32, [8usize].as_ptr() => *const usize, 1 => usize
    )));
    content.fill(0.0);
    assert_eq!(run(&options).unwrap(), [11.0, 22.0]);
    let strings = Value::new(STRING, &[2]);
    let options = Options::new();
    check(add(&options, c"v", strings.0));
    assert!(run(&options).err().unwrap().message.contains("'v'"));
}

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

extern "C" fn collect(
    parameter: *mut c_void,
    severity: c_int,
    category: *const c_char,
    name: *const c_char,
    _place: *const c_char,
    message: *const c_char,
) {
    let number = parameter.addr();
    let text = [category, name, message].map(to_text).join(" | ");
    MESSAGES.lock().unwrap().push(format!("{number} {severity} {text}"));
}

#[test]
fn a_missed_entry_is_a_warning_once() {
    let mut env = ptr::null_mut();
    check(call!(CreateEnvWithCustomLogger(
        collect => extern "C" fn(
            *mut c_void, c_int, *const c_char, *const c_char, *const c_char, *const c_char
        ),
        ptr::without_provenance_mut(7) => *mut c_void, 2 => c_int,
        c"mine".as_ptr() => *const c_char, &mut env => *mut Object
    )));
    let options = Options::new();
    options.add_entry(c"session.set_denormal_as_zero", c"1");
    options.add_entry(c"session.intra_op.allow_spinning", c"0");
    let bytes = to_bytes("g (float x) => (float y) { y = Relu (x) }");
    for _ in 0..2 {
        let mut session = ptr::null_mut();
        check(call!(CreateSessionFromArray(
            env => Object, bytes.as_ptr() => *const u8, bytes.len() => usize,
            options.0 => Object, &mut session => *mut Object
        )));
        call!(ReleaseSession(session => Object) -> ());
    }
    call!(ReleaseEnv(env => Object) -> ());
    let messages = MESSAGES.lock().unwrap();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with("7 2 sardonyx | mine | the entry"), "{messages:?}");
    assert!(messages[0].contains("session.set_denormal_as_zero"), "{messages:?}");
}

#[test]
fn run_options_keep_their_values() {
    let mut options = ptr::null_mut();
    check(call!(CreateRunOptions(&mut options => *mut Object)));
    check(call!(RunOptionsSetRunTag(options => Object, c"tag".as_ptr() => *const c_char)));
    check(call!(RunOptionsSetRunLogSeverityLevel(options => Object, 3 => c_int)));
    check(call!(RunOptionsSetRunLogVerbosityLevel(options => Object, 4 => c_int)));
    let (mut tag, mut severity, mut verbosity) = (ptr::null(), 0, 0);
    check(call!(RunOptionsGetRunTag(options => Object, &mut tag => *mut *const c_char)));
    check(call!(RunOptionsGetRunLogSeverityLevel(
        options => Object, &mut severity => *mut c_int
    )));
    check(call!(RunOptionsGetRunLogVerbosityLevel(
        options => Object, &mut verbosity => *mut c_int
    )));
    assert_eq!((to_text(tag).as_str(), severity, verbosity), ("tag", 3, 4));
    check(call!(AddRunConfigEntry(
        options => Object, c"k".as_ptr() => *const c_char, c"v".as_ptr() => *const c_char
    )));
    let value = call!(GetRunConfigEntry(
        options => Object, c"k".as_ptr() => *const c_char
    ) -> *const c_char);
    assert_eq!(to_text(value), "v");
    call!(ReleaseRunOptions(options => Object) -> ());
}

#[test]
fn the_cpu_is_the_only_device() {
    let env = crate::interface::Environment::new();
    let (mut names, mut count) = (ptr::null_mut::<*mut c_char>(), 0);
    check(call!(GetAvailableProviders(
        &mut names => *mut *mut *mut c_char, &mut count => *mut c_int
    )));
    assert_eq!(count, 1);
    // SAFETY: the library has returned one name.
    assert_eq!(to_text(unsafe { *names }), "CPUExecutionProvider");
    check(call!(ReleaseAvailableProviders(names => *mut *mut c_char, count => c_int)));
    let (mut devices, mut count) = (ptr::null::<Object>(), 0);
    check(call!(GetEpDevices(
        env.0 => Object, &mut devices => *mut *const Object, &mut count => *mut usize
    )));
    assert_eq!(count, 1);
    // SAFETY: the library has returned one device.
    let device = unsafe { *devices };
    let name = call!(EpDevice_EpName(device => Object) -> *const c_char);
    assert_eq!(to_text(name), "CPUExecutionProvider");
    let options = Options::new();
    check(call!(SessionOptionsAppendExecutionProvider_V2(
        options.0 => Object, env.0 => Object, devices => *const Object, 1 => usize,
        ptr::null() => *const c_void, ptr::null() => *const c_void, 0 => usize
    )));
    let hardware = call!(EpDevice_Device(device => Object) -> Object);
    assert_eq!(call!(HardwareDevice_Type(hardware => Object) -> c_int), 0);
    read(call!(GetNumHardwareDevices(env.0 => Object, &mut count => *mut usize))).unwrap();
}
