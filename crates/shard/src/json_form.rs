//! Form of the report for the crate `serde`. The answer of the command has the same keys, as it
//! writes this form.

use serde::{Serialize, Serializer};

use crate::suggest::ShardReport;

/// Writes the numbers of matrix products and tables by their split, `products_by_columns`,
/// `products_by_rows`, `products_whole` and `tables_by_rows`; `multiply_adds_of_stages`; and the
/// numbers `inputs_by_batch`, `nodes_by_batch` and `nodes_in_subgraphs`.
impl Serialize for ShardReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            products_by_columns: usize,
            products_by_rows: usize,
            products_whole: usize,
            tables_by_rows: usize,
            multiply_adds_of_stages: &'a [u64],
            inputs_by_batch: usize,
            nodes_by_batch: usize,
            nodes_in_subgraphs: usize,
        }
        let form = Form {
            products_by_columns: self.columns,
            products_by_rows: self.rows,
            products_whole: self.whole,
            tables_by_rows: self.tables,
            multiply_adds_of_stages: &self.stages,
            inputs_by_batch: self.inputs,
            nodes_by_batch: self.in_parts,
            nodes_in_subgraphs: self.inside,
        };
        form.serialize(serializer)
    }
}
