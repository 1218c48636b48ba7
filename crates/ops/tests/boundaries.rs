//! Boundaries between versions of operators that no adapter crosses and that some nodes cannot
//! cross unchanged: `-` an attribute that is removed, `~` one whose absence means something else.

use std::fmt::Write;

use sardonyx_ops::Registry;

#[test]
fn boundaries_without_adapter_that_stop_nodes() {
    let mut found = String::new();
    for operator in Registry::standard().operators() {
        for version in operator.versions() {
            let Some(boundary) = operator.unadapted_boundary(version.since) else {
                continue;
            };
            let _ = write!(found, "{} {}:", operator.full_name(), version.since);
            for name in boundary.gone {
                let _ = write!(found, " -{name}");
            }
            for name in boundary.changed_defaults {
                let _ = write!(found, " ~{name}");
            }
            if let Some((least, most)) = boundary.inputs {
                let _ = write!(found, " inputs {least}..{most:?}");
            }
            if let Some((least, most)) = boundary.outputs {
                let _ = write!(found, " outputs {least}..{most:?}");
            }
            found.push('\n');
        }
    }
    assert_eq!(found, "");
}
