//! The table itself: its order, its versions, and functions that are not there.

use std::ffi::c_int;

use sardonyx_capi::{ENTRIES, NEWEST_VERSION, api_base, entry_count};

use crate::interface::{Object, demand_failure, find, to_text};

#[test]
fn versions_are_prefixes_of_one_table() {
    let counts = [
        (17, 276),
        (18, 280),
        (19, 280),
        (20, 285),
        (21, 285),
        (22, 318),
        (23, 390),
        (24, 415),
        (25, 419),
        (26, 419),
        (27, 422),
        (28, 424),
        (29, 425),
        (30, 426),
        (31, 428),
    ];
    for (version, count) in counts {
        assert_eq!(entry_count(version), count, "{version}");
        assert_eq!((api_base().get_api)(version), (api_base().get_api)(NEWEST_VERSION));
    }
    assert!(ENTRIES.is_sorted_by_key(|entry| entry.since));
    assert_eq!(entry_count(1), 276);
    for version in [0, NEWEST_VERSION + 1] {
        assert_eq!(entry_count(version), 0);
        assert!((api_base().get_api)(version).is_null());
    }
    assert!(to_text((api_base().get_version)()).starts_with("1.31."));
}

#[test]
fn functions_have_their_place() {
    // Places that the C header fixes.
    for (name, index) in [
        ("CreateStatus", 0),
        ("Run", 9),
        ("GetAllocatorWithDefaultOptions", 78),
        ("ReleaseEnv", 92),
        ("CreateEnvWithGlobalThreadPools", 119),
        ("RunAsync", 260),
        ("GetModelEditorApi", 291),
        ("GetModelPackageApi", 427),
    ] {
        assert_eq!(ENTRIES.iter().position(|entry| entry.name == name), Some(index), "{name}");
    }
    for entry in ENTRIES {
        assert!(!find(entry.name).is_null(), "{}", entry.name);
    }
}

#[test]
fn functions_that_are_not_there_name_themselves() {
    let mut refusals = 0;
    for entry in ENTRIES.iter().filter(|entry| !entry.is_real) {
        // SAFETY: these functions take no arguments and return a pointer.
        let function = unsafe {
            std::mem::transmute::<*const (), extern "C" fn() -> Object>(find(entry.name))
        };
        let status = function();
        if !status.is_null() {
            let not_implemented: c_int = 9;
            demand_failure(status, not_implemented, &format!("{} is not implemented", entry.name));
            refusals += 1;
        }
    }
    assert!(refusals > 100, "{refusals}");
}

#[test]
fn tables_beside_it_are_there() {
    let editor = crate::interface::call!(GetModelEditorApi() -> *const *const ());
    let compile = crate::interface::call!(GetCompileApi() -> *const *const ());
    assert!(!editor.is_null() && !compile.is_null());
    assert!(crate::interface::call!(GetTrainingApi(31 => u32)).is_null());
    let info = to_text(crate::interface::call!(GetBuildInfoString() -> *const std::ffi::c_char));
    assert!(info.contains("Sardonyx"), "{info}");
}
