//! Tensors of all types, in memory of the library and of the caller.

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::interface::{
    FLOAT, INT64, Object, STRING, Session, Value, allocator, call, check, cpu, demand_failure,
};

/// Names of element types with their numbers, and the bytes of an element times 8.
const TYPES: [(&str, c_int, usize); 23] = [
    ("float", 1, 32),
    ("uint8", 2, 8),
    ("int8", 3, 8),
    ("uint16", 4, 16),
    ("int16", 5, 16),
    ("int32", 6, 32),
    ("int64", 7, 64),
    ("bool", 9, 8),
    ("float16", 10, 16),
    ("double", 11, 64),
    ("uint32", 12, 32),
    ("uint64", 13, 64),
    ("complex64", 14, 64),
    ("complex128", 15, 128),
    ("bfloat16", 16, 16),
    ("float8e4m3fn", 17, 8),
    ("float8e4m3fnuz", 18, 8),
    ("float8e5m2", 19, 8),
    ("float8e5m2fnuz", 20, 8),
    ("uint4", 21, 4),
    ("int4", 22, 4),
    ("float4e2m1", 23, 4),
    ("float8e8m0", 26, 8),
];

#[test]
fn every_type_goes_through_a_run() {
    for (name, number, bits) in TYPES {
        let graph = format!("g ({name}[N] x) => ({name}[N] y) {{ y = Identity (x) }}");
        let head = "<ir_version: 11, opset_import: [\"\": 24]>";
        let model = sardonyx::Model::from_text(&format!("{head} {graph}")).unwrap();
        let session = match Session::from_bytes(&model.to_bytes(), ptr::null_mut()) {
            Ok(session) => session,
            Err(failure) => panic!("{name}: {failure:?}"),
        };
        let mut memory: Vec<u8> = (0..6 * bits / 8).map(|byte| byte as u8 % 2).collect();
        let before = memory.clone();
        let theirs = Value::borrow(number, &[6], &mut memory);
        assert_eq!(theirs.shape(), (number, vec![6]), "{name}");
        let ours = Value::new(number, &[6]);
        assert_eq!(ours.read::<u8>(), vec![0; 6 * bits / 8], "{name}");
        ours.write(&before);
        for x in [&theirs, &ours] {
            let outputs = session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
            assert_eq!(outputs[0].shape(), (number, vec![6]), "{name}");
            assert_eq!(outputs[0].read::<u8>(), before, "{name}");
        }
    }
}

#[test]
fn memory_of_the_caller_is_checked() {
    let info = cpu();
    let mut floats = [0f32; 4];
    let make = |start: *mut f32, len: usize, dims: &[i64], element: c_int| {
        let mut value = ptr::null_mut();
        let status = call!(CreateTensorWithDataAsOrtValue(
            info => Object, start => *mut f32, len => usize, dims.as_ptr() => *const i64,
            dims.len() => usize, element => c_int, &mut value => *mut Object
        ));
        drop(Value(value));
        status
    };
    let start = floats.as_mut_ptr();
    check(make(start, 16, &[4], FLOAT));
    check(make(start, 16, &[3], FLOAT));
    check(make(ptr::null_mut(), 0, &[0], FLOAT));
    check(make(start, 16, &[], FLOAT));
    demand_failure(make(start, 15, &[4], FLOAT), 2, "needs 16 bytes, but there are 15");
    demand_failure(make(ptr::null_mut(), 16, &[4], FLOAT), 2, "is a null pointer");
    demand_failure(make(start, 16, &[-1], FLOAT), 2, "has a negative size");
    demand_failure(make(start, 16, &[i64::MAX, i64::MAX], FLOAT), 2, "larger than memory");
    demand_failure(make(start, 16, &[4], 0), 2, "no element type has the number 0");
    demand_failure(make(start, 16, &[4], 77), 2, "no element type has the number 77");
    demand_failure(make(start, 16, &[1], STRING), 2, "use CreateTensorAsOrtValue");
    call!(ReleaseMemoryInfo(info => Object) -> ());
}

#[test]
fn elements_have_addresses() {
    let value = Value::new(INT64, &[2, 3]);
    value.write(&[0i64, 1, 2, 3, 4, 5]);
    let mut place = ptr::null_mut::<i64>();
    let at = |index: &[i64], place: &mut *mut i64| {
        call!(TensorAt(
            value.0 => Object, index.as_ptr() => *const i64, index.len() => usize,
            place => *mut *mut i64
        ))
    };
    check(at(&[1, 2], &mut place));
    // SAFETY: the address is that of an element.
    assert_eq!(unsafe { *place }, 5);
    demand_failure(at(&[2, 0], &mut place), 2, "exceeds [2, 3]");
    demand_failure(at(&[1], &mut place), 2, "1 indices for a tensor of rank 2");
    let (mut element, mut dims, mut rank) = (0, ptr::null::<i64>(), 0);
    check(call!(GetTensorElementTypeAndShapeDataReference(
        value.0 => Object, &mut element => *mut c_int, &mut dims => *mut *const i64,
        &mut rank => *mut usize
    )));
    // SAFETY: the library has returned the dims of the value, which lives.
    let dims = unsafe { std::slice::from_raw_parts(dims, rank) };
    assert_eq!((element, dims), (INT64, &[2i64, 3][..]));
}

#[test]
fn strings_are_filled_and_read() {
    let session = Session::new("g (string[N] x) => (string[N] y) { y = Identity (x) }");
    let value = Value::strings(&[c"one", c"", c"drei\xc3\xa4"]);
    assert_eq!(value.read_strings(), ["one", "", "dreiä"]);
    let index = 1usize;
    check(call!(FillStringTensorElement(
        value.0 => Object, c"two".as_ptr() => *const c_char, index => usize
    )));
    let mut buffer = ptr::null_mut::<c_char>();
    check(call!(GetResizedStringTensorElementBuffer(
        value.0 => Object, 0 => usize, 2 => usize, &mut buffer => *mut *mut c_char
    )));
    // SAFETY: the buffer has two bytes.
    unsafe { ptr::copy_nonoverlapping(c"up".as_ptr(), buffer, 2) };
    let outputs = session.run(&[(c"x", value.0)], &[c"y"]).unwrap();
    assert_eq!(outputs[0].read_strings(), ["up", "two", "dreiä"]);
    assert_eq!(outputs[0].shape(), (STRING, vec![3]));
    let mut len = 0;
    check(call!(GetStringTensorElementLength(
        outputs[0].0 => Object, 2 => usize, &mut len => *mut usize
    )));
    assert_eq!(len, 6);
    let mut bytes = [0u8; 6];
    check(call!(GetStringTensorElement(
        outputs[0].0 => Object, 6 => usize, 2 => usize, bytes.as_mut_ptr() => *mut u8
    )));
    assert_eq!(bytes, "dreiä".as_bytes());
    demand_failure(
        call!(GetStringTensorElement(
            outputs[0].0 => Object, 5 => usize, 2 => usize, bytes.as_mut_ptr() => *mut u8
        )),
        2,
        "has 6 bytes, and there is room for 5",
    );
    demand_failure(
        call!(FillStringTensorElement(
            value.0 => Object, c"x".as_ptr() => *const c_char, 3 => usize
        )),
        2,
        "index 3 is out of range: the tensor has 3 strings",
    );
    let mut data = ptr::null_mut::<u8>();
    demand_failure(
        call!(GetTensorMutableData(value.0 => Object, &mut data => *mut *mut u8)),
        2,
        "GetStringTensorContent",
    );
    // A given value takes the output.
    let into = Value::new(STRING, &[3]);
    check(session.start_run(ptr::null_mut(), &[(c"x", value.0)], &[c"y"], &mut [into.0]));
    assert_eq!(into.read_strings(), ["up", "two", "dreiä"]);
}

/// Allocator of a client, which counts.
#[repr(C)]
struct Counting {
    version: u32,
    alloc: extern "C" fn(*mut Counting, usize) -> *mut u8,
    free: extern "C" fn(*mut Counting, *mut u8),
    info: extern "C" fn(*const Counting) -> Object,
    reserve: *const (),
    live: usize,
    total: usize,
}

extern "C" fn count_alloc(this: *mut Counting, len: usize) -> *mut u8 {
    // SAFETY: the library passes the allocator that it was given.
    let this = unsafe { &mut *this };
    this.live += 1;
    this.total += 1;
    let block = vec![0u64; len / 8 + 1].into_boxed_slice();
    Box::into_raw(block).cast()
}

extern "C" fn count_free(this: *mut Counting, _: *mut u8) {
    // SAFETY: as above. The test leaves the memory to the end of the process.
    unsafe { &mut *this }.live -= 1;
}

extern "C" fn no_info(_: *const Counting) -> Object {
    ptr::null_mut()
}

#[test]
fn memory_of_a_clients_allocator_is_freed_once() {
    let mut counting = Counting {
        version: 17,
        alloc: count_alloc,
        free: count_free,
        info: no_info,
        reserve: ptr::null(),
        live: 0,
        total: 0,
    };
    let allocator = &raw mut counting;
    let mut value = ptr::null_mut();
    let dims = [2i64];
    check(call!(CreateTensorAsOrtValue(
        allocator => *mut Counting, dims.as_ptr() => *const i64, 1 => usize, FLOAT => c_int,
        &mut value => *mut Object
    )));
    let x = Value(value);
    x.write(&[1f32, -1.0]);
    let session = Session::new("g (float[N] x) => (float[N] y) { y = Identity (x) }");
    let outputs = session.run(&[(c"x", x.0)], &[c"y"]).unwrap();
    drop(x);
    // SAFETY: nothing else uses the allocator now.
    assert_eq!(unsafe { ((*allocator).live, (*allocator).total) }, (0, 1));
    assert_eq!(outputs[0].read::<f32>(), [1.0, -1.0]);
    let mut name = ptr::null_mut::<c_char>();
    check(call!(SessionGetInputName(
        session.0 => Object, 0 => usize, allocator => *mut Counting,
        &mut name => *mut *mut c_char
    )));
    assert_eq!(crate::interface::to_text(name), "x");
    check(call!(AllocatorFree(allocator => *mut Counting, name => *mut c_char)));
    let (dims, memory) = ([1i64], count_alloc(allocator, 4));
    check(call!(CreateTensorWithDataAndDeleterAsOrtValue(
        allocator => *mut Counting, memory => *mut u8, 4 => usize, dims.as_ptr() => *const i64,
        1 => usize, FLOAT => c_int, &mut value => *mut Object
    )));
    drop(Value(value));
    // SAFETY: nothing else uses the allocator now.
    assert_eq!(unsafe { ((*allocator).live, (*allocator).total) }, (0, 3));
}

#[test]
fn the_default_allocator_aligns() {
    for len in [0usize, 1, 100, 1 << 20] {
        let mut memory = ptr::null_mut::<u8>();
        check(call!(AllocatorAlloc(
            allocator() => Object, len => usize, &mut memory => *mut *mut u8
        )));
        assert!(memory.addr().is_multiple_of(64));
        check(call!(AllocatorFree(allocator() => Object, memory => *mut u8)));
    }
    let mut memory = ptr::null_mut::<u8>();
    let status = call!(AllocatorAlloc(
        allocator() => Object, usize::MAX => usize, &mut memory => *mut *mut u8
    ));
    demand_failure(status, 1, "not enough memory");
    let (mut first, mut same) = (ptr::null_mut(), -1);
    check(call!(AllocatorGetInfo(allocator() => Object, &mut first => *mut Object)));
    let second = cpu();
    check(call!(CompareMemoryInfo(
        first => Object, second => Object, &mut same => *mut c_int
    )));
    assert_eq!(same, 0);
    call!(ReleaseMemoryInfo(second => Object) -> ());
}

#[test]
fn memory_of_other_devices_is_described_but_not_used() {
    let mut info = ptr::null_mut();
    check(call!(CreateMemoryInfo(
        c"WebGPU_Buf".as_ptr() => *const c_char, 0 => c_int, 0 => c_int, 0 => c_int,
        &mut info => *mut Object
    )));
    let mut device = -1;
    call!(MemoryInfoGetDeviceType(info => Object, &mut device => *mut c_int) -> ());
    assert_eq!(device, 1);
    let (mut value, mut elements, dims) = (ptr::null_mut(), [0f32; 2], [2i64]);
    let status = call!(CreateTensorWithDataAsOrtValue(
        info => Object, elements.as_mut_ptr() => *mut f32, 8 => usize, dims.as_ptr() => *const i64,
        1 => usize, FLOAT => c_int, &mut value => *mut Object
    ));
    demand_failure(status, 9, "the memory of the device 'WebGPU_Buf' is not available");
    assert!(value.is_null());
    call!(ReleaseMemoryInfo(info => Object) -> ());
    check(call!(CreateMemoryInfo_V2(
        c"Mine".as_ptr() => *const c_char, 1 => c_int, 7 => u32, 0 => c_int, 5 => c_int,
        64 => usize, 0 => c_int, &mut info => *mut Object
    )));
    let kind = call!(MemoryInfoGetDeviceMemType(info => Object) -> c_int);
    let vendor = call!(MemoryInfoGetVendorId(info => Object) -> u32);
    assert_eq!((kind, vendor), (5, 7));
    call!(ReleaseMemoryInfo(info => Object) -> ());
}
