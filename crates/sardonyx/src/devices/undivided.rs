//! Why annotations leave devices with nothing to do apart.

use sardonyx_passes::{Division, ShardReport};

use crate::model::Model;

impl Model {
    /// Why the annotations of [`Model::shard`] on this model leave the devices with nothing to do
    /// apart; `None` if they have something to do.
    pub(crate) fn undivided(&self, report: &ShardReport, division: Division) -> Option<String> {
        let ShardReport { columns, rows, whole, tables, stages, .. } = report;
        match division {
            Division::Tensor if columns + rows + tables > 0 => None,
            Division::Tensor if *whole == 0 => Some(
                "no MatMul or Gemm of the main graph has a constant matrix of at least 4096 \
                 elements, and no Gather has a constant table of at least 1048576 elements"
                    .to_string(),
            ),
            Division::Tensor => Some(
                "the results of all products with large constant matrices are needed whole by the \
                 nodes that read them"
                    .to_string(),
            ),
            Division::Pipeline => match stages.iter().filter(|work| **work > 0).count() {
                0 => Some("no node has multiply-adds, which stages are made of".to_string()),
                1 => Some("all multiply-adds are in one stage".to_string()),
                _ => None,
            },
            Division::Batch => {
                let inputs = self.inputs();
                let mut axes =
                    inputs.iter().filter_map(|port| Some((port, port.ty()?.shape()?.first()?)));
                let (port, batch) = axes.next()?;
                let name = port.name();
                match batch.known().filter(|size| *size < 2) {
                    Some(size) => Some(format!(
                        "the first axis of '{name}' has the fixed size {size} (a name instead of it \
                         leaves the size open)"
                    )),
                    None => (report.in_parts == 0)
                        .then(|| format!("no node computes a part of the examples of '{name}'")),
                }
            }
        }
    }
}
