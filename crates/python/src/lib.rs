//! The Python extension module `sardonyx._core`: the compiled functions of the `onnx` package under
//! their original names, and sessions, which run models.
//!
//! One file per submodule. Messages are passed as serialized bytes and values as arrays; all
//! knowledge about ONNX is in the crates below. The only global state is the registry of operators
//! ([`registry`]), because Python code expects an operator that it registers to be known
//! everywhere.

mod checker;
mod defs;
mod errors;
#[cfg(feature = "generate")]
mod generation;
mod inliner;
mod items;
mod message;
mod parser;
mod printer;
mod registry;
mod session;
mod shape_inference;
mod simplifier;
mod version_converter;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

/// Initializes the module: adds its constants, and its submodules under their full names.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    sardonyx::tool::keep_panic_places();
    module.add("ONNX_ML", true)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("IR_VERSION", sardonyx::tool::NEWEST_IR_VERSION)?;
    module.add("HAS_TEST_OPERATORS", cfg!(debug_assertions))?;
    type Fill = fn(&Bound<'_, PyModule>) -> PyResult<()>;
    let submodules: &[(&str, Fill)] = &[
        ("checker", checker::fill_module),
        ("defs", defs::fill_module),
        #[cfg(feature = "generate")]
        ("generation", generation::fill_module),
        ("inliner", inliner::fill_module),
        ("ort", session::ort::fill_module),
        ("parser", parser::fill_module),
        ("printer", printer::fill_module),
        ("session", session::fill_module),
        ("shape_inference", shape_inference::fill_module),
        ("simplifier", simplifier::fill_module),
        ("version_converter", version_converter::fill_module),
    ];
    let loaded = py.import("sys")?.getattr("modules")?;
    for (name, fill) in submodules {
        let full = format!("sardonyx._core.{name}");
        let submodule = PyModule::new(py, &full)?;
        fill(&submodule)?;
        // `import sardonyx._core.checker` looks only there: a `.so` file is not a package.
        loaded.set_item(full, &submodule)?;
        module.add(*name, submodule)?;
    }
    Ok(())
}
