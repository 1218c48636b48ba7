//! Inputs and outputs that are bound to a session.

use std::ffi::c_char;
use std::ptr;

use crate::interface::{
    FLOAT, Object, Session, Value, allocator, call, check, cpu, demand_failure,
};

struct Binding(Object);

impl Drop for Binding {
    fn drop(&mut self) {
        call!(ReleaseIoBinding(self.0 => Object) -> ());
    }
}

impl Binding {
    fn new(session: &Session) -> Binding {
        let mut binding = ptr::null_mut();
        check(call!(CreateIoBinding(session.0 => Object, &mut binding => *mut Object)));
        Binding(binding)
    }

    fn values(&self) -> Vec<Value> {
        let (mut values, mut count) = (ptr::null_mut::<Object>(), 0);
        check(call!(GetBoundOutputValues(
            self.0 => Object, allocator() => Object, &mut values => *mut *mut Object,
            &mut count => *mut usize
        )));
        if count == 0 {
            assert!(values.is_null());
            return Vec::new();
        }
        // SAFETY: the library has returned as many values.
        let found = unsafe { std::slice::from_raw_parts(values, count) }.to_vec();
        check(call!(AllocatorFree(allocator() => Object, values => *mut Object)));
        found.into_iter().map(Value).collect()
    }

    fn names(&self) -> Vec<String> {
        let (mut text, mut lengths, mut count) = (ptr::null_mut(), ptr::null_mut::<usize>(), 0);
        check(call!(GetBoundOutputNames(
            self.0 => Object, allocator() => Object, &mut text => *mut *mut c_char,
            &mut lengths => *mut *mut usize, &mut count => *mut usize
        )));
        let mut names = Vec::new();
        let mut start = text.cast::<u8>();
        for index in 0..count {
            // SAFETY: the library has returned as many lengths.
            let len = unsafe { *lengths.add(index) };
            // SAFETY: the text has the names one after the other.
            let name = unsafe { std::slice::from_raw_parts(start, len) };
            names.push(String::from_utf8(name.to_vec()).unwrap());
            start = start.wrapping_add(len);
        }
        if count > 0 {
            check(call!(AllocatorFree(allocator() => Object, text => *mut c_char)));
            check(call!(AllocatorFree(allocator() => Object, lengths => *mut usize)));
        }
        names
    }
}

#[test]
fn a_binding_keeps_values_and_returns_outputs() {
    let session = Session::new(
        "g (float[N] a, float[N] b) => (float[N] sum, float[N] diff) {
        sum = Add (a, b) diff = Sub (a, b)
    }",
    );
    let binding = Binding::new(&session);
    assert!(binding.values().is_empty() && binding.names().is_empty());
    let (a, b) = (Value::floats(&[5.0, 7.0]), Value::floats(&[1.0, 2.0]));
    let info = cpu();
    let bind = |name: &std::ffi::CStr, value: &Value| {
        call!(BindInput(
            binding.0 => Object, name.as_ptr() => *const c_char, value.0 => Object
        ))
    };
    check(bind(c"a", &a));
    check(bind(c"b", &b));
    demand_failure(bind(c"q", &b), 2, "the model has no input 'q'; it has 'a', 'b'");
    let mut memory = [0f32; 2];
    let into = Value::borrow(FLOAT, &[2], &mut memory);
    check(call!(BindOutput(
        binding.0 => Object, c"diff".as_ptr() => *const c_char, into.0 => Object
    )));
    check(call!(BindOutputToDevice(
        binding.0 => Object, c"sum".as_ptr() => *const c_char, info => Object
    )));
    // The binding keeps the values.
    drop((a, into));
    check(call!(SynchronizeBoundInputs(binding.0 => Object)));
    let run = || {
        call!(RunWithBinding(
            session.0 => Object, ptr::null_mut() => Object, binding.0 => Object
        ))
    };
    check(run());
    check(call!(SynchronizeBoundOutputs(binding.0 => Object)));
    assert_eq!(binding.names(), ["diff", "sum"]);
    let values = binding.values();
    assert_eq!(values[0].read::<f32>(), [4.0, 5.0]);
    assert_eq!(values[1].read::<f32>(), [6.0, 9.0]);
    check(bind(c"a", &Value::floats(&[0.0, 0.0])));
    check(run());
    // Bound memory is written again, and a new output is another value.
    assert_eq!(values[0].read::<f32>(), [-1.0, -2.0]);
    assert_eq!(values[1].read::<f32>(), [6.0, 9.0]);
    call!(ClearBoundInputs(binding.0 => Object) -> ());
    demand_failure(run(), 2, "Required inputs (['a', 'b']) are missing");
    call!(ClearBoundOutputs(binding.0 => Object) -> ());
    assert!(binding.values().is_empty() && binding.names().is_empty());
    let other = Session::new("g (float[N] a) => (float[N] b) { b = Relu (a) }");
    demand_failure(
        call!(RunWithBinding(
            other.0 => Object, ptr::null_mut() => Object, binding.0 => Object
        )),
        2,
        "the binding belongs to another session",
    );
    call!(ReleaseMemoryInfo(info => Object) -> ());
    drop((values, binding, session));
    assert_eq!(memory, [-1.0, -2.0]);
}
