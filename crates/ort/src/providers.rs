//! Execution providers that callers name. The only available one is that of the CPU.

use crate::error::Error;
use crate::refused;

/// Name of the execution provider of the CPU.
pub const CPU_PROVIDER: &str = "CPUExecutionProvider";

/// Execution providers that models run on.
pub const AVAILABLE: [&str; 1] = [CPU_PROVIDER];

/// Name of the memory of the CPU.
pub const CPU_MEMORY: &str = "Cpu";

/// Names of devices whose memory is that of the CPU.
const CPU_DEVICES: [&str; 2] = ["cpu", "cpu_pinned"];

/// Name of an execution provider, with its options.
pub type Provider = (String, Vec<(String, String)>);

/// Execution providers without duplicates.
#[derive(Debug, PartialEq, Eq)]
pub struct Normalized {
    /// Providers in order.
    pub providers: Vec<Provider>,
    /// Warnings about unavailable and duplicate providers.
    pub warnings: Vec<String>,
}

/// Removes duplicates, of which the first counts, and warns about unavailable providers. These stay
/// in the list, as onnxruntime falls back to the next provider.
pub fn normalize(given: Vec<Provider>, available: &[String]) -> Normalized {
    let mut normalized = Normalized { providers: Vec::new(), warnings: Vec::new() };
    for (name, options) in given {
        if !available.contains(&name) {
            let available = available.join("', '");
            let warning = format!("the provider '{name}' is not available; use '{available}'");
            normalized.warnings.push(warning);
        }
        if normalized.providers.iter().any(|(known, _)| *known == name) {
            normalized.warnings.push(format!("duplicate provider '{name}': the first one counts"));
            continue;
        }
        normalized.providers.push((name, options));
    }
    normalized
}

/// Refuses all execution providers but that of the CPU.
///
/// # Errors
///
/// If `name` is another provider.
pub fn demand_provider(name: &str) -> Result<(), Error> {
    if name == CPU_PROVIDER { Ok(()) } else { Err(refused::error("provider", &[name])) }
}

/// Refuses memory of all devices but the CPU.
///
/// # Errors
///
/// If `name` is another device.
pub fn demand_device(name: &str) -> Result<(), Error> {
    let is_known = CPU_DEVICES.contains(&&*name.to_ascii_lowercase());
    if is_known { Ok(()) } else { Err(refused::error("device", &[name])) }
}

/// Refuses all names of memory but that of the CPU.
///
/// # Errors
///
/// If `name` is another name.
pub fn demand_memory(name: &str) -> Result<(), Error> {
    if name == CPU_MEMORY { Ok(()) } else { Err(refused::error("memory", &[name])) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;

    #[test]
    fn providers_are_kept_once() {
        let provider =
            |name: &str, key: &str| (name.to_string(), vec![(key.to_string(), "1".to_string())]);
        let given =
            vec![provider(CPU_PROVIDER, "a"), provider("Other", "b"), provider(CPU_PROVIDER, "c")];
        let found = normalize(given.clone(), &[CPU_PROVIDER.to_string()]);
        assert_eq!(found.providers, given[..2]);
        assert_eq!(
            found.warnings,
            [
                "the provider 'Other' is not available; use 'CPUExecutionProvider'",
                "duplicate provider 'CPUExecutionProvider': the first one counts"
            ]
        );
    }

    #[test]
    fn other_devices_are_refused() {
        for found in
            [demand_provider("CUDAExecutionProvider"), demand_device("cuda"), demand_memory("Cuda")]
        {
            assert_eq!(found.unwrap_err().status, Status::NotImplemented);
        }
        demand_provider(CPU_PROVIDER).unwrap();
        demand_device("CPU").unwrap();
        demand_device("cpu_pinned").unwrap();
        demand_memory("Cpu").unwrap();
    }
}
