//! Throwaway.
#![allow(clippy::unwrap_used)]
use sardonyx_model::{Model, NoExternalData, read_value, Type};
use sardonyx_runtime::{Options, Session};
use sardonyx_tensor::{Buffer, Tolerance, Value};
use std::path::Path;

fn run(case: &Path) -> Result<(), String> {
    let model = Model::read(Buffer::from_vec(std::fs::read(case.join("model.onnx")).unwrap())).map_err(|e| format!("read: {e}"))?;
    let session = Session::compile(&model, &NoExternalData, &Options::default()).map_err(|e| format!("compile: {e}"))?;
    let mut n = 0;
    loop {
        let dir = case.join(format!("test_data_set_{n}"));
        if !dir.exists() { break }
        let read = |kind: &str, i: usize, ty: &Option<Type>| -> Result<Value, String> {
            let bytes = std::fs::read(dir.join(format!("{kind}_{i}.pb"))).map_err(|e| e.to_string())?;
            read_value(Buffer::from_vec(bytes), ty.as_ref().unwrap())
        };
        let mut inputs = Vec::new();
        for (i, port) in session.inputs().iter().enumerate() {
            if !dir.join(format!("input_{i}.pb")).exists() { continue }
            inputs.push((port.name.clone(), read("input", i, &port.ty)?));
        }
        let got = session.run(inputs).map_err(|e| format!("run: {e}"))?;
        for (i, ((name, got), port)) in got.iter().zip(session.outputs()).enumerate() {
            let want = read("output", i, &port.ty)?;
            match (got.as_tensor(), want.as_tensor()) {
                (Some(g), Some(w)) => g.compare(w, Tolerance::NODE_TESTS).map_err(|e| format!("{name}: {e}"))?,
                _ if *got == want => {}
                _ => return Err(format!("{name}: {got:?} is not {want:?}")),
            }
        }
        n += 1;
    }
    if n == 0 { return Err("no data".into()) }
    Ok(())
}

#[test]
fn backend() {
    let folder = std::env::var("SARDONYX_CASES").unwrap();
    let filter = std::env::var("FILTER").unwrap_or_default();
    let (mut good, mut bad) = (0, 0);
    for kind in ["node", "simple", "pytorch-operator", "pytorch-converted"] {
        let mut cases: Vec<_> = std::fs::read_dir(Path::new(&folder).join(kind)).unwrap().map(|e| e.unwrap().path()).collect();
        cases.sort();
        for case in cases {
            let name = case.file_name().unwrap().to_str().unwrap().to_string();
            let mine = ["cast_", "concat_", "constant", "constantofshape", "expand_", "gather_", "identity", "flatten", "reshape", "squeeze", "unsqueeze", "shape", "size", "slice", "split_", "transpose", "where", "edge_pad", "reflect_pad", "wrap_pad"]
                .iter().any(|p| name.starts_with(&format!("test_{p}")));
            if filter.is_empty() && kind == "node" && !mine { continue }
            if !name.contains(&filter) { continue }
            match std::panic::catch_unwind(|| run(&case)).unwrap_or_else(|_| Err("panic".into())) {
                Ok(()) => good += 1,
                Err(e) => { bad += 1; println!("BAD {kind}/{name}: {}", e.replace('\n', " | ")); }
            }
        }
    }
    println!("good {good} bad {bad}");
}
