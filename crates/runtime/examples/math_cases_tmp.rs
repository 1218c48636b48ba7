use sardonyx_model::{Model, NoExternalData, read_value};
use sardonyx_runtime::{CompileError, Options, Session};
use sardonyx_tensor::{Buffer, Tolerance, Value};
use std::collections::BTreeMap;
use std::fs;

fn num(json: &str, key: &str) -> Option<f64> {
    let at = json.find(&format!("\"{key}\":"))? + key.len() + 3;
    let rest = json[at..].trim_start();
    let end = rest
        .find(|c: char| c == ',' || c == '}')
        .unwrap_or(rest.len());
    rest[..end].trim().parse().ok()
}

fn run(dir: &std::path::Path) -> Result<(), (String, String)> {
    let e = |k: &str, m: String| (k.to_string(), m);
    let json = fs::read_to_string(dir.join("case.json")).map_err(|x| e("case", x.to_string()))?;
    let tol = Tolerance {
        rtol: num(&json, "rtol").unwrap_or(1e-3),
        atol: num(&json, "atol").unwrap_or(1e-7),
    };
    let bytes = fs::read(dir.join("model.onnx")).map_err(|x| e("case", x.to_string()))?;
    let model = Model::read(Buffer::from_vec(bytes)).map_err(|x| e("case", x.to_string()))?;
    let session = Session::compile(&model, &NoExternalData, &Options::with_threads(1)).map_err(
        |x| match &x {
            CompileError::Unsupported(ops) => e(
                "unsupported",
                ops.iter()
                    .map(|o| format!("{}: {}", o.name, o.why))
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            _ => e("compile", x.to_string()),
        },
    )?;
    for set in 0.. {
        let set = dir.join(format!("test_data_set_{set}"));
        if !set.exists() {
            break;
        }
        let mut inputs = Vec::new();
        let mut at = 0;
        for port in session.inputs().iter().filter(|p| p.required) {
            let file = set.join(format!("input_{at}.pb"));
            at += 1;
            let bytes = fs::read(&file).map_err(|x| e("case", format!("{file:?} {x}")))?;
            if bytes.is_empty() {
                continue;
            }
            let ty = port
                .ty
                .as_ref()
                .ok_or_else(|| e("case", "no type".into()))?;
            inputs.push((
                port.name.clone(),
                read_value(Buffer::from_vec(bytes), ty).map_err(|x| e("case", x))?,
            ));
        }
        let outputs = session.run(inputs).map_err(|x| e("run", x.to_string()))?;
        for (i, ((name, got), port)) in outputs.iter().zip(session.outputs()).enumerate() {
            let bytes = fs::read(set.join(format!("output_{i}.pb")))
                .map_err(|x| e("case", x.to_string()))?;
            let ty = port
                .ty
                .clone()
                .ok_or_else(|| e("wrong", "no output type".into()))?;
            let want = read_value(Buffer::from_vec(bytes), &ty).map_err(|x| e("case", x))?;
            match (got, &want) {
                (Value::Tensor(g), Value::Tensor(w)) => g
                    .compare(w, tol)
                    .map_err(|m| e("wrong", format!("{name}: {m}")))?,
                _ => {
                    if got != &want {
                        return Err(e("wrong", format!("{name}: differs")));
                    }
                }
            }
        }
    }
    Ok(())
}

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    std::panic::set_hook(Box::new(|_| {}));
    for kind in [
        "node",
        "simple",
        "pytorch-operator",
        "pytorch-converted",
        "model",
    ] {
        let mut dirs: Vec<_> = fs::read_dir(format!("/tmp/cases/{kind}"))
            .unwrap()
            .map(|d| d.unwrap().path())
            .collect();
        dirs.sort();
        for dir in dirs {
            let name = dir.file_name().unwrap().to_string_lossy().into_owned();
            if !filter.is_empty() && !filter.iter().any(|f| name.contains(f.as_str())) {
                continue;
            }
            let r = std::panic::catch_unwind(|| run(&dir)).unwrap_or_else(|p| {
                let m = p
                    .downcast_ref::<String>()
                    .cloned()
                    .or(p.downcast_ref::<&str>().map(|s| s.to_string()));
                Err(("panic".into(), m.unwrap_or_default()))
            });
            match r {
                Ok(()) => {
                    *counts.entry(format!("{kind} pass")).or_default() += 1;
                    if !filter.is_empty() {
                        println!("pass {kind}/{name}");
                    }
                }
                Err((k, m)) => {
                    *counts.entry(format!("{kind} {k}")).or_default() += 1;
                    if k == "unsupported" {
                        for part in m.split("; ") {
                            *missing.entry(part.to_string()).or_default() += 1;
                        }
                        if !filter.is_empty() {
                            println!("{k} {kind}/{name}: {m}");
                        }
                    } else {
                        println!("{k} {kind}/{name}: {}", m.replace('\n', " "));
                    }
                }
            }
        }
    }
    println!("{counts:#?}");
    println!("{missing:#?}");
}
