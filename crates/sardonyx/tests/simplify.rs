//! Simplifies every model of the data suites: results are valid and have the same interface, and
//! those of models whose inputs have default values are the same bits. `tests/simplify` has the
//! results of single rules.

use std::fs;
use std::path::{Path, PathBuf};

use sardonyx::edit::{EditError, SimplifyLevel, SimplifyOptions, simplify_rules};
use sardonyx::run::Optimization;
use sardonyx::value::Tolerance;
use sardonyx::{Model, RunOptions, Session, Value};

/// Reads the valid models of the data suites, with their paths.
fn models() -> Vec<(PathBuf, Model)> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let suites = ["check", "convert", "devices", "infer", "inline", "program", "run", "simplify"];
    let mut left: Vec<PathBuf> = suites.map(|suite| tests.join(suite)).into();
    let mut models = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(model) = Model::open(&path) {
            models.push((path, model));
        }
    }
    assert!(models.len() > 500, "{} models", models.len());
    models.sort_by(|(one, _), (other, _)| one.cmp(other));
    models
}

fn ports(model: &Model) -> Vec<String> {
    model.inputs().iter().chain(&model.outputs()).map(ToString::to_string).collect()
}

/// Lists the inputs and outputs that a result must have: those of the model. Before IR version 4,
/// constants are inputs, too, and may go.
fn wanted_ports(model: &Model, result: &Model) -> Vec<String> {
    let is_old = model.ir_version().unwrap_or(0) < 4;
    let (left, inputs) = (result.inputs(), model.inputs());
    let inputs = inputs.iter().filter(|port| {
        !is_old || port.is_required() || left.iter().any(|found| found.name() == port.name())
    });
    inputs.chain(&model.outputs()).map(ToString::to_string).collect()
}

/// Runs a model on the default values of its inputs; `None` if it cannot be run so, or loops for
/// long: `tests/run` has a model that never ends.
fn run(model: &Model) -> Option<Vec<(String, Value)>> {
    let session = Session::builder(model).optimization(Optimization::Off).seed(0).build().ok()?;
    let inputs: [(&str, Value); 0] = [];
    let outputs = session.run(inputs, &RunOptions::new().iteration_limit(10_000)).ok()?;
    Some(outputs.into_iter().collect())
}

#[test]
fn results_of_data_suites_are_the_same() {
    let (mut simplified, mut compared, mut fewer) = (0, 0, 0);
    for (path, model) in models() {
        for level in [SimplifyLevel::Exact, SimplifyLevel::Close] {
            let options = SimplifyOptions::new().level(level);
            let (result, report) = match model.simplify(&options) {
                Ok(found) => found,
                Err(EditError::NotSimplifiable(_)) => continue,
                Err(error) => panic!("{}: {error}", path.display()),
            };
            simplified += 1;
            assert_eq!(report.rejected, [], "{}", path.display());
            assert_eq!(ports(&result), wanted_ports(&model, &result), "{}", path.display());
            let (before, after) = (report.before.nodes, report.after.nodes);
            assert!(after <= before, "{}: {before} to {after} nodes", path.display());
            fewer += usize::from(after < before);
            let Some(wanted) = run(&model) else { continue };
            let found = run(&result);
            let found = found.unwrap_or_else(|| panic!("{}: does not run", path.display()));
            let tolerance = match level {
                SimplifyLevel::Exact => Tolerance::EXACT,
                SimplifyLevel::Close => Tolerance { rtol: 1e-4, atol: 1e-5 },
            };
            for ((name, wanted), (_, found)) in wanted.iter().zip(&found) {
                let same = found.compare(wanted, tolerance);
                assert!(same.is_ok(), "{}: {name}: {}", path.display(), same.unwrap_err());
            }
            compared += 1;
        }
    }
    assert!(simplified > 500 && compared > 100 && fewer > 50, "{simplified} {compared} {fewer}");
}

/// Checks that simplifying a result again changes nothing.
#[test]
fn results_are_simple() {
    for (path, model) in models() {
        if !path.parent().is_some_and(|parent| parent.ends_with("simplify")) {
            continue;
        }
        for level in [SimplifyLevel::Exact, SimplifyLevel::Close] {
            let options = SimplifyOptions::new().level(level);
            let Ok((once, _)) = model.simplify(&options) else { continue };
            let (_, report) = once.simplify(&options).unwrap();
            assert!(report.is_unchanged(), "{}: {:?}", path.display(), report.rules);
        }
    }
}

/// Simplifies a model with an LSTM, whose initial states are halves of `state`. Returns the number
/// of states that were omitted, and of nodes.
fn omit_states(state: &str) -> (usize, usize) {
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g (float[1, B, 2] x) => (float[1, B, 1] y)
         <float[1, 4, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[1, 4, 1] r = {{1, 2, 3, 4}},
          int64[1] one = {{1}}, int64[2] halves = {{1, 1}}, float[1, 3] peepholes = {{0, 0, 0}},
          float negative = {{-0.0}}>
         {{
             s = Shape <start = 1, end = 2> (x)
             two = Constant <value_ints = [2]> ()
             t = Concat <axis = 0> (two, s, one)
             z = {state}
             h, c = Split <axis = 0> (z, halves)
             a, y = LSTM <hidden_size = 1> (x, w, r, \"\", \"\", h, c, peepholes)
         }}"
    );
    let model = Model::from_text(&text).unwrap();
    let (_, report) = model.simplify(&SimplifyOptions::new()).unwrap();
    (report.rules.get("zero-states").map_or(0, |found| found.count), report.after.nodes)
}

#[test]
fn initial_states_of_zeros_are_omitted() {
    assert_eq!(omit_states("ConstantOfShape (t)"), (2, 1));
    // A negative zero is another number, and stays.
    assert_eq!(omit_states("Expand (negative, t)").0, 0);
}

/// Checks that weights stay computed at `exact`: a packed constant gives other bits than a computed
/// operand.
#[test]
fn operands_of_products_stay_computed() {
    // Inference knows whole numbers, and running nodes gives the others.
    for weight in ["1, 2, 3, 4", "0.5, 0.25, 0.75, 0.125"] {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2, 2] x) => (float[2, 2] y, float[2, 2] z)
             <float[2, 2] w = {{{weight}}}>
             {{
                 t = Transpose (w)
                 y = MatMul (x, t)
                 i = Identity (w)
                 z = Gemm (x, i)
             }}"
        );
        let model = Model::from_text(&text).unwrap();
        for (level, nodes) in [(SimplifyLevel::Exact, 4), (SimplifyLevel::Close, 2)] {
            let (_, report) = model.simplify(&SimplifyOptions::new().level(level)).unwrap();
            assert_eq!(report.after.nodes, nodes, "{level:?}: {weight}");
        }
    }
}

/// Checks that a weight that the only iteration of a loop is given stays computed.
#[test]
fn operands_in_single_iterations_stay_computed() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[2, 2] x) => (float[2, 2] y)
        <int64 one = {1}, float[2, 2] w = {0.5, 0.25, 0.75, 0.125}, float[2, 2] z = {0, 0, 0, 0}> {
            v, y = Loop (one, \"\", w, z) <
                body = step (int64 i, bool go, float[2, 2] a, float[2, 2] b)
                    => (bool on, float[2, 2] c, float[2, 2] d) {
                    on = Identity (go)
                    c = Identity (a)
                    d = MatMul (x, a)
                }
            >
        }";
    let model = Model::from_text(text).unwrap();
    for (level, nodes) in [(SimplifyLevel::Exact, 2), (SimplifyLevel::Close, 1)] {
        let (_, report) = model.simplify(&SimplifyOptions::new().level(level)).unwrap();
        assert_eq!(report.after.nodes, nodes, "{level:?}");
    }
}

/// Checks that a model before IR version 4 keeps its inputs: constants of a branch that is taken
/// are nodes, and constants that are not inputs stay so.
#[test]
fn models_before_ir_version_4_get_no_inputs() {
    let text = "<ir_version: 3, opset_import: [\"\": 8]>
        g (float[2] x, bool go) => (float[2] y) <bool go = {1}, float[2] w = {10, 20}> {
            a = Add (x, w)
            y = If (go) <
                then_branch = yes () => (float[2] r) <float[2] c = {1, 2}> { r = Add (a, c) },
                else_branch = no () => (float[2] r) { r = Neg (a) }
            >
        }";
    let model = Model::from_text(text).unwrap();
    let (result, _) = model.simplify(&SimplifyOptions::new()).unwrap();
    assert_eq!(ports(&result), ["x: float[2]", "y: float[2]"]);
    let operators: Vec<(String, usize)> =
        result.operators().iter().map(|op| (op.name.to_string(), op.nodes)).collect();
    assert!(operators.contains(&("Constant".to_string(), 1)), "{operators:?}");
    assert!(Session::new(&result).is_ok());
}

#[test]
fn large_sizes_are_lowered_where_nothing_depends_on_them() {
    let weight: Vec<String> = (0..64 * 8).map(|index| format!("{}.5", index % 7)).collect();
    // Ten million elements, more than are drawn.
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g (float[1, 400, 401, 64] x) => (float[1, 400, 401, 8] y)
         <float[64, 8] w = {{{}}}, float[8] f = {{1, 2, 3, 4, 5, 6, 7, 8}}>
         {{ a = MatMul (x, w) y = Mul (a, f) }}",
        weight.join(", ")
    );
    let model = Model::from_text(&text).unwrap();
    let options = SimplifyOptions::new().level(SimplifyLevel::Close);
    let (result, report) = model.simplify(&options).unwrap();
    assert_eq!(result.node_count(), 1);
    assert_eq!((report.verified, report.unverified), (1, 0), "{report:?}");
}

#[test]
fn unknown_rules_are_refused() {
    let text =
        "<ir_version: 10, opset_import: [\"\": 21]> g (float[2] x) => (float[2] y) { y = Abs (x) }";
    let model = Model::from_text(text).unwrap();
    let error = model.simplify(&SimplifyOptions::new().without_rule("fuse")).unwrap_err();
    assert!(error.to_string().starts_with("unknown rule 'fuse'; rules are: fold, "), "{error}");
    let names: Vec<&str> = simplify_rules().iter().map(|rule| rule.name).collect();
    for name in names {
        model.simplify(&SimplifyOptions::new().without_rule(name)).unwrap();
    }
}

/// Checks that the manual has a table of all rules with their levels.
#[test]
fn the_manual_lists_all_rules() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simplifying.md");
    let page = fs::read_to_string(&path).unwrap();
    let rows = simplify_rules().into_iter();
    let rows =
        rows.map(|rule| format!("| `{}` | {} | {} |\n", rule.name, rule.level.name(), rule.about));
    let table: String = rows.collect();
    if std::env::var_os("BLESS").is_some() && !page.contains(&table) {
        let start = page.find("| `fold`").unwrap_or(page.len());
        let end = page[start..].find("\n\n").map_or(page.len(), |end| start + end + 1);
        fs::write(&path, format!("{}{table}{}", &page[..start], &page[end..])).unwrap();
    }
    assert!(page.contains(&table), "BLESS=1 writes the table of rules into {}", path.display());
}
