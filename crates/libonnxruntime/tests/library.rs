//! The shared library, opened as a client does.

#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;

use libloading::Library;

/// Structure that `OrtGetApiBase` returns.
#[repr(C)]
struct Base {
    get_api: extern "C" fn(u32) -> *const *const (),
    get_version: extern "C" fn() -> *const c_char,
}

/// Returns the path of the library, beside the test program.
fn path() -> PathBuf {
    use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
    let program = std::env::current_exe().unwrap();
    program.with_file_name(format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}"))
}

#[test]
fn a_client_finds_its_symbols() {
    // SAFETY: the library runs no code when it is opened.
    let library = unsafe { Library::new(path()) }.unwrap();
    // SAFETY: the type is that of the C header.
    let base = unsafe { library.get::<extern "C" fn() -> *const Base>(c"OrtGetApiBase") }.unwrap();
    // SAFETY: the function returns a structure that lives as long as the library.
    let base = unsafe { &*base() };
    // SAFETY: the text ends with a zero byte.
    let version = unsafe { CStr::from_ptr((base.get_version)()) };
    assert!(version.to_str().unwrap().starts_with("1."));
    let table = (base.get_api)(17);
    assert!(!table.is_null());
    assert!((base.get_api)(10_000).is_null());
    // SAFETY: functions have their place in the table, and these are `CreateEnv` and `ReleaseEnv`.
    let (create, release) = unsafe { (*table.add(3), *table.add(92)) };
    let mut env = std::ptr::null_mut::<c_void>();
    // SAFETY: the type is that of the C header.
    let create = unsafe {
        std::mem::transmute::<
            *const (),
            extern "C" fn(c_int, *const c_char, *mut *mut c_void) -> *mut c_void,
        >(create)
    };
    assert!(create(2, c"test".as_ptr(), &raw mut env).is_null() && !env.is_null());
    // SAFETY: the type is that of the C header.
    let release = unsafe { std::mem::transmute::<*const (), extern "C" fn(*mut c_void)>(release) };
    release(env);
    // SAFETY: the type is that of the C header.
    let append = unsafe {
        library.get::<extern "C" fn(*mut c_void, c_int) -> *mut c_void>(
            c"OrtSessionOptionsAppendExecutionProvider_CPU",
        )
    };
    assert!(!append.unwrap()(std::ptr::null_mut(), 1).is_null());
}

/// Lists the symbols that the library defines, with `nm`; `None` without it.
#[cfg(target_os = "linux")]
fn list_symbols() -> Option<Vec<String>> {
    let output =
        std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(path()).output();
    let Ok(output) = output else {
        eprintln!("skipped: the program nm is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.rsplit(' ').next().unwrap().to_string()).collect())
}

#[test]
#[cfg(target_os = "linux")]
fn nothing_else_is_exported() {
    let Some(symbols) = list_symbols() else { return };
    let known = ["OrtGetApiBase", "OrtSessionOptionsAppendExecutionProvider_CPU"];
    for name in known {
        assert!(symbols.iter().any(|symbol| symbol == name), "{symbols:?}");
    }
    for symbol in &symbols {
        let (name, version) = symbol.split_once('@').unwrap_or((symbol, "VERS_1."));
        // An entry of each version itself has no place in the code.
        let is_version = symbol.starts_with("VERS_1.");
        assert!(is_version || known.contains(&name) && version.starts_with("VERS_1."), "{symbol}");
    }
}

#[test]
#[cfg(all(feature = "symbol-versions", has_version_script))]
fn symbols_have_the_versions_of_releases() {
    let Some(symbols) = list_symbols() else { return };
    for version in ["1.17.0", "1.24.4", "1.30.0", "1.31.1"] {
        let name = format!("OrtGetApiBase@VERS_{version}");
        assert!(symbols.contains(&name), "{version}: {symbols:?}");
    }
}
