//! Entries of the configuration that onnxruntime documents and that have no effect in Sardonyx.
//!
//! Entries about devices, threads, caches and compiled models change neither results nor limits,
//! and are ignored without a warning.

/// Entry whose effect a caller would miss.
struct MissedEntry {
    key: &'static str,
    /// Value that has no effect in onnxruntime either, and needs no warning.
    default: &'static str,
    /// Behaviour of Sardonyx, for the warning.
    instead: &'static str,
}

/// Creates an entry whose default is 0.
const fn entry(key: &'static str, instead: &'static str) -> MissedEntry {
    MissedEntry { key, default: "0", instead }
}

/// Entries of sessions.
const MISSED: [MissedEntry; 11] = [
    entry("ep.context_enable", "no model with compiled parts is written"),
    entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "products are computed in float"),
    entry("optimization.enable_gelu_approximation", "Gelu is computed without approximation"),
    entry("session.allow_released_opsets_only", "operator sets are checked when nodes are"),
    entry("session.collect_node_memory_stats_to_file", "no file of memory per node is written"),
    entry("session.compile_only", "the session is ready to run"),
    entry("session.disable_quant_qdq", "QuantizeLinear and DequantizeLinear are fused"),
    entry("session.record_ep_graph_assignment_info", "nodes are not assigned to providers"),
    entry("session.set_denormal_as_zero", "denormal numbers keep their values"),
    entry("session.strict_shape_type_inference", "types that contradict each other are warnings"),
    MissedEntry {
        key: "session.qdq_matmulnbits_accuracy_level",
        default: "4",
        instead: "products are computed in float",
    },
];

/// Returns a warning for an entry whose effect a caller would miss; `None` for other entries.
pub(crate) fn warn_of(key: &str, value: &str) -> Option<String> {
    let entry = MISSED.iter().find(|entry| entry.key == key)?;
    let is_default = value.is_empty() || value == entry.default;
    (!is_default).then(|| format!("the entry '{key}' = '{value}' has no effect: {}", entry.instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_an_effect_elsewhere_are_named() {
        let warning = warn_of("session.set_denormal_as_zero", "1").unwrap();
        assert_eq!(
            warning,
            "the entry 'session.set_denormal_as_zero' = '1' has no effect: denormal numbers keep \
             their values"
        );
        for (key, value) in [
            ("session.set_denormal_as_zero", "0"),
            ("session.qdq_matmulnbits_accuracy_level", "4"),
            ("session.intra_op.allow_spinning", "1"),
        ] {
            assert_eq!(warn_of(key, value), None);
        }
    }
}
