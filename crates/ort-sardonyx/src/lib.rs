//! Sardonyx as the backend of the crate `ort`.
//!
//! A program calls [`ort::set_api`] with the result of [`api`] before it does anything else with
//! `ort`. Its models then run with Sardonyx.
//!
//! [`ort::set_api`]: https://docs.rs/ort/2.0.0-rc.15/ort/fn.set_api.html

/// Number of words of the table that `ort` has been compiled for.
const WORDS: usize = size_of::<ort_sys::OrtApi>() / size_of::<usize>();

/// Returns the table of functions for `ort::set_api`.
///
/// ```no_run
/// # // `ort` is not a dependency, so that a program chooses its version and its features.
/// let api = ort_sardonyx::api();
/// # let _ = api;
/// ```
#[allow(unsafe_code)]
pub fn api() -> ort_sys::OrtApi {
    const {
        assert!(WORDS <= sardonyx_capi::ENTRY_COUNT, "`ort` is newer than this crate: update it");
    }
    let table = (sardonyx_capi::api_base().get_api)(sardonyx_capi::NEWEST_VERSION);
    // SAFETY: the table has at least as many functions as the structure, in the same order, as
    // functions are only added at its end. Each has the arguments and the result that the C header
    // gives the field.
    unsafe { table.cast::<ort_sys::OrtApi>().read() }
}
