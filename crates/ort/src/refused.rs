//! Messages for features of onnxruntime that Sardonyx lacks, each with advice.

use sardonyx::ErrorKind;

use crate::error::Error;
use crate::status::Status;

/// Message for a feature that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal {
    /// Key by which interfaces find it.
    key: &'static str,
    /// Message, in which each `{}` is replaced by a name from the caller.
    what: &'static str,
    /// Advice, in which each `{}` is replaced by the first name.
    help: &'static str,
}

/// Creates a refusal.
const fn refusal(key: &'static str, what: &'static str, help: &'static str) -> Refusal {
    Refusal { key, what, help }
}

const NO_ADAPTERS: &str =
    "add the parameters to the weights of the model, or make them inputs of the model";
const QUANTIZE: &str =
    "quantize the model where onnxruntime is installed; Sardonyx runs the result";
const NO_DEVICES: &str = "leave it out: models are not compiled for a device";

/// All refusals.
const REFUSALS: [Refusal; 20] = [
    refusal("adapter", "the adapter '{}' cannot be loaded: Sardonyx has no adapters", NO_ADAPTERS),
    refusal(
        "adapter file to read",
        "the adapter '{}' cannot be read: Sardonyx has no adapters",
        NO_ADAPTERS,
    ),
    refusal(
        "adapter file to write",
        "the adapter '{}' cannot be written: Sardonyx has no adapters",
        NO_ADAPTERS,
    ),
    refusal("adapter to make", "an adapter cannot be made: Sardonyx has no adapters", NO_ADAPTERS),
    refusal("adapter of a run", "adapters cannot be added to a run", "put them into the model"),
    refusal(
        "class",
        "{} is not supported",
        "remove it: no function of Sardonyx takes or returns a {}",
    ),
    refusal(
        "compiled model",
        "models are not compiled to files",
        "give the model itself to InferenceSession, which prepares it",
    ),
    refusal(
        "compiled parts",
        "parts of a model that are compiled for an execution provider cannot run",
        "use the model as it was exported",
    ),
    refusal(
        "custom operators",
        "the library of operators '{}' is compiled for onnxruntime",
        "operators of a model can be given as functions in the model",
    ),
    refusal(
        "device",
        "the device is '{}', and models run on the CPU only",
        "bind values to the device 'cpu'",
    ),
    refusal(
        "dynamic options",
        "the execution provider has no options that change while it runs",
        "leave the call out",
    ),
    refusal("compatibility function", "onnxruntime.capi has no function '{}' here", NO_DEVICES),
    refusal(
        "graph assignment",
        "nodes are not assigned to execution providers",
        "Session.profile says what computes each step",
    ),
    refusal("memory", "the memory of the device '{}' is not available", "use the name 'Cpu'"),
    refusal(
        "memory kind",
        "memory of the kind {} is not available",
        "use OrtMemoryInfoDeviceType.CPU",
    ),
    refusal("provider", "the execution provider '{}' is not available", "use CPUExecutionProvider"),
    refusal(
        "provider library",
        "the library '{}' of the execution provider '{}' is compiled for onnxruntime",
        "leave it out and use CPUExecutionProvider",
    ),
    refusal("quantizing function", "onnxruntime.capi has no function '{}' here", QUANTIZE),
    refusal(
        "schema function",
        "onnxruntime.capi has no function '{}' here",
        "sardonyx.defs.get_all_schemas_with_history lists the operators",
    ),
    refusal(
        "stream",
        "the CPU has no streams",
        "leave the stream out: values on the CPU are there at once",
    ),
];

/// Returns the refusal of this key, with names from the caller; `None` for an unknown key.
pub fn find(key: &str, names: &[&str]) -> Option<Error> {
    let refusal = REFUSALS.iter().find(|refusal| refusal.key == key)?;
    let mut what = String::new();
    let mut names_left = names.iter();
    for (number, part) in refusal.what.split("{}").enumerate() {
        if number > 0 {
            what.push_str(names_left.next().copied().unwrap_or_default());
        }
        what.push_str(part);
    }
    let help = refusal.help.replace("{}", names.first().copied().unwrap_or_default());
    Some(Error::new(Status::NotImplemented, ErrorKind::Unsupported, what).with_help(help))
}

/// Returns the refusal of a key in the table.
pub(crate) fn error(key: &str, names: &[&str]) -> Error {
    find(key, names).unwrap_or_else(|| {
        let what = format!("{key} is not supported");
        Error::new(Status::NotImplemented, ErrorKind::Unsupported, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_a_key_of_its_own_and_advice() {
        for (number, refusal) in REFUSALS.iter().enumerate() {
            assert!(!refusal.help.is_empty(), "{refusal:?}");
            assert!(
                !REFUSALS[..number].iter().any(|other| other.key == refusal.key),
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn names_are_put_in() {
        let error = find("provider library", &["own.so", "Own"]).unwrap();
        assert_eq!(
            error.to_string(),
            "the library 'own.so' of the execution provider 'Own' is compiled for onnxruntime\n\
             help: leave it out and use CPUExecutionProvider"
        );
        let error = find("class", &["OrtSyncStream"]).unwrap();
        assert_eq!(error.message, "OrtSyncStream is not supported");
        assert!(error.help.unwrap().ends_with("returns a OrtSyncStream"));
        // The mark in a name is not replaced.
        assert_eq!(find("device", &["{}"]).unwrap().message.matches("{}").count(), 1);
        assert!(find("nothing", &[]).is_none());
    }
}
