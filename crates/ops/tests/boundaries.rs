//! The boundaries between versions of operators that no adapter crosses and that some nodes cannot
//! cross as they stand: `-` an attribute that is gone, `~` one that means something else if it is
//! left out.

use std::fmt::Write;

use sardonyx_ops::Registry;

const EXPECTED: &str = "\
DFT 20: -axis
GRU 3: ~direction
GRU 7: -output_sequence
GlobalLpPool 2: -p
GridSample 20: ~mode
LSTM 7: -output_sequence
LpPool 2: -p ~kernel_shape
RNN 7: -output_sequence
Resize 11: inputs 3..Some(4)
Scan 9: -directions
Upsample 7: -height_scale -width_scale ~scales
Upsample 9: -scales inputs 2..Some(2)
ai.onnx.ml.LabelEncoder 2: -classes_strings
";

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
    assert_eq!(found, EXPECTED);
}
