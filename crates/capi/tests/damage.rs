//! Calls that a correct client never makes: each returns, and changes nothing.

use std::ffi::c_int;
use std::ptr;

use sardonyx_capi::ENTRIES;

use crate::interface::{
    Environment, Object, Session, Value, call, check, cpu, find, read, to_text,
};

/// Functions whose first argument is an object, with the Rust name of its type.
const FIRST_HANDLES: &str = include_str!("first_handles.tsv");

/// Function of a table with ten arguments, more than any has. Each is an address or 0.
type Any = unsafe extern "C" fn(
    Object,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> Object;

/// Whether a function returns a status, and not a number or a place of the library.
fn returns_a_status(name: &str) -> bool {
    let others = [
        "GetErrorCode",
        "GetErrorMessage",
        "GetKeyValue",
        "GetRunConfigEntry",
        "GetBuildInfoString",
        "GetModelEditorApi",
        "GetCompileApi",
        "TensorTypeAndShape_HasShape",
        "CreateStatus",
        "GetKeyValuePairs",
        "CreateKeyValuePairs",
        "AddKeyValuePair",
        "RemoveKeyValuePair",
        "ClearBoundInputs",
        "ClearBoundOutputs",
        "MemoryInfoGetDeviceType",
        "MemoryInfoGetDeviceMemType",
        "MemoryInfoGetVendorId",
    ];
    let is_pointer = ["HardwareDevice_", "EpDevice_"].iter().any(|start| name.starts_with(start));
    let is_release = name.starts_with("Release")
        && name != "ReleaseAvailableProviders"
        && name != "ReleaseSharedAllocator";
    !is_pointer && !is_release && !others.contains(&name)
}

fn call_any(name: &str, first: Object) -> Object {
    // SAFETY: no function reads more than ten arguments, and all are passed as words.
    let function = unsafe { std::mem::transmute::<*const (), Any>(find(name)) };
    // SAFETY: every function checks its pointers; the others are null.
    unsafe { function(first, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
}

#[test]
fn null_pointers_are_errors() {
    let mut refusals = 0;
    for entry in ENTRIES {
        let result = call_any(entry.name, ptr::null_mut());
        if returns_a_status(entry.name) && !result.is_null() {
            let failure = read(result).unwrap_err();
            assert!(matches!(failure.code, 1..=15) && !failure.message.is_empty(), "{failure:?}");
            refusals += 1;
        }
    }
    assert!(refusals > 300, "{refusals}");
}

/// Objects of many types, with the Rust names of these types.
struct Objects {
    session: Session,
    value: Value,
    others: Vec<(&'static str, Object)>,
}

impl Objects {
    fn new() -> Objects {
        let mut others = vec![("MemoryInfo", cpu())];
        let mut object = ptr::null_mut();
        check(call!(CreateSessionOptions(&mut object => *mut Object)));
        others.push(("SessionOptions", object));
        check(call!(CreateRunOptions(&mut object => *mut Object)));
        others.push(("RunOptions", object));
        check(call!(CreateThreadingOptions(&mut object => *mut Object)));
        others.push(("Threading", object));
        check(call!(CreateTensorTypeAndShapeInfo(&mut object => *mut Object)));
        others.push(("TensorInfo", object));
        call!(CreateKeyValuePairs(&mut object => *mut Object) -> ());
        others.push(("Pairs", object));
        let session = Session::new("g (float[N] x) => (float[N] y) { y = Relu (x) }");
        check(call!(CreateIoBinding(session.0 => Object, &mut object => *mut Object)));
        others.push(("Binding", object));
        check(call!(SessionGetModelMetadata(session.0 => Object, &mut object => *mut Object)));
        others.push(("Metadata", object));
        check(call!(SessionGetInputTypeInfo(
            session.0 => Object, 0 => usize, &mut object => *mut Object
        )));
        others.push(("TypeInfo", object));
        Objects { session, value: Value::floats(&[1.0]), others }
    }

    fn all(&self) -> Vec<(&'static str, Object)> {
        let mut all = self.others.clone();
        all.push(("Session", self.session.0));
        all.push(("Environment", self.session.1.0));
        all.push(("Value", self.value.0));
        all
    }

    fn release(self) {
        for (name, object) in &self.others {
            match *name {
                "MemoryInfo" => call!(ReleaseMemoryInfo(*object => Object) -> ()),
                "SessionOptions" => call!(ReleaseSessionOptions(*object => Object) -> ()),
                "RunOptions" => call!(ReleaseRunOptions(*object => Object) -> ()),
                "Threading" => call!(ReleaseThreadingOptions(*object => Object) -> ()),
                "TensorInfo" => call!(ReleaseTensorTypeAndShapeInfo(*object => Object) -> ()),
                "Pairs" => call!(ReleaseKeyValuePairs(*object => Object) -> ()),
                "Binding" => call!(ReleaseIoBinding(*object => Object) -> ()),
                "Metadata" => call!(ReleaseModelMetadata(*object => Object) -> ()),
                other => {
                    assert_eq!(other, "TypeInfo");
                    call!(ReleaseTypeInfo(*object => Object) -> ());
                }
            }
        }
    }
}

/// Environment variable of the process in which [`ten_thousand_damaged_calls_are_errors`] makes its
/// calls.
#[cfg(debug_assertions)]
const ALONE: &str = "SARDONYX_CAPI_DAMAGE";

/// Calls with objects of other types and released ones, which debug builds distinguish.
///
/// They are made in a process of their own: elsewhere an object of another test may get the address
/// of a released one, and the calls would change and free it.
#[cfg(debug_assertions)]
#[test]
fn ten_thousand_damaged_calls_are_errors() {
    if std::env::var_os(ALONE).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "damage::ten_thousand_damaged_calls_are_errors", "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
        return;
    }
    let live = Objects::new();
    let released = Objects::new();
    let gone = released.all();
    released.release();
    let wrong: Vec<(&str, Object)> = live.all();
    // Memory of the library may be used again, so a live object is not a released one.
    let gone: Vec<Object> = gone
        .into_iter()
        .map(|(_, object)| object)
        .filter(|object| !wrong.iter().any(|(_, other)| other == object))
        .collect();
    let mut calls = 0;
    for _ in 0..4 {
        for row in FIRST_HANDLES.lines() {
            let (name, kind) = row.split_once('\t').unwrap();
            assert!(ENTRIES.iter().any(|entry| entry.name == name && entry.is_real), "{name}");
            let others = wrong.iter().filter(|(other, _)| *other != kind).map(|(_, object)| object);
            for object in others.chain(&gone) {
                let result = call_any(name, *object);
                calls += 1;
                if returns_a_status(name) {
                    let failure = read(result).expect_err(name);
                    assert!(matches!(failure.code, 2 | 9), "{name}: {failure:?}");
                }
            }
        }
    }
    assert!(calls > 10_000, "{calls}");
    // All objects are as they were.
    let outputs = live.session.run(&[(c"x", live.value.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read::<f32>(), [1.0]);
    drop(outputs);
    live.release();
}

#[test]
fn a_status_is_made_and_read() {
    let status = call!(CreateStatus(3 => c_int, c"words".as_ptr() => *const std::ffi::c_char));
    assert_eq!(call!(GetErrorCode(status => Object) -> c_int), 3);
    let message = call!(GetErrorMessage(status => Object) -> *const std::ffi::c_char);
    assert_eq!(to_text(message), "words");
    call!(ReleaseStatus(status => Object) -> ());
    let env = Environment::new();
    check(call!(UpdateEnvWithCustomLogLevel(env.0 => Object, 4 => c_int)));
}
