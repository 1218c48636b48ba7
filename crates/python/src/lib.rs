//! The Python module: what the extension of the `onnx` package offers, under the same names, on
//! Sardonyx, and sessions, which run models.
//!
//! One file per submodule. Messages cross the border as bytes, as there, and values as arrays;
//! nothing here knows more about ONNX than how to ask the crates below. The one thing that is
//! global is the registry of operators ([`registry`]), because Python code expects an operator that
//! it registers to be known everywhere.

mod checker;
mod defs;
mod errors;
mod inliner;
mod message;
mod parser;
mod printer;
mod registry;
mod session;
mod shape_inference;
mod version_converter;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

/// Sardonyx under the names of the onnx package's core.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    sardonyx::tool::keep_panic_places();
    module.add("ONNX_ML", true)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("IR_VERSION", sardonyx::tool::NEWEST_IR_VERSION)?;
    module.add("HAS_TEST_OPERATORS", cfg!(debug_assertions))?;
    let loaded = py.import("sys")?.getattr("modules")?;
    let add = |name: &str, fill: fn(&Bound<'_, PyModule>) -> PyResult<()>| {
        let full = format!("sardonyx._core.{name}");
        let submodule = PyModule::new(py, &full)?;
        fill(&submodule)?;
        // Without this it could not be imported by its full name.
        loaded.set_item(full, &submodule)?;
        module.add(name, submodule)
    };
    add("checker", checker::fill)?;
    add("defs", defs::fill)?;
    add("inliner", inliner::fill)?;
    add("ort", session::ort::fill)?;
    add("parser", parser::fill)?;
    add("printer", printer::fill)?;
    add("session", session::fill)?;
    add("shape_inference", shape_inference::fill)?;
    add("version_converter", version_converter::fill)
}
