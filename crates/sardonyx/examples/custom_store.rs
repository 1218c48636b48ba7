//! Loads a model whose weights are in a store that the program implements: encrypted in memory
//! here; an archive, a database or a remote service works in the same way.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;

use sardonyx::io::DataResolver;
use sardonyx::value::Buffer;
use sardonyx::{Model, OpenOptions, RunOptions, Session, Tensor};

/// Store of files that are encrypted by XOR with a key.
struct EncryptedStore {
    files: HashMap<String, Vec<u8>>,
    key: u8,
}

impl DataResolver for EncryptedStore {
    /// Returns the decrypted content of a data file. The location is untrusted text from the model;
    /// looking it up as a key of the map cannot leave the store.
    fn resolve(&self, location: &str) -> io::Result<Buffer> {
        let bytes = self.files.get(location).ok_or(io::ErrorKind::NotFound)?;
        Ok(Buffer::from_vec(bytes.iter().map(|byte| byte ^ self.key).collect()))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The weight `w` is external data in the file "weights".
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
         g (float[2] x) => (float[2] y)
             <float[2] w = [\"location\": \"weights\", \"offset\": \"0\", \"length\": \"8\"]> {
             y = Mul (x, w)
         }";
    let bytes = Model::from_text(text)?.to_bytes();

    let plain = [2f32, 3.0].iter().flat_map(|number| number.to_le_bytes());
    let key = 0x5a;
    let encrypted = plain.map(|byte| byte ^ key).collect();
    let files = HashMap::from([("weights".to_string(), encrypted)]);

    let store = Arc::new(EncryptedStore { files, key });
    let model = OpenOptions::new().resolver(store).from_bytes(bytes)?;
    let x = Tensor::from_vec([2], vec![1f32, 10.0])?;
    let outputs = Session::new(&model)?.run([("x", x)], &RunOptions::default())?;
    assert_eq!(outputs.tensor("y")?.as_slice::<f32>()?, [2.0, 30.0]);
    println!("{}", outputs.tensor("y")?);
    Ok(())
}
