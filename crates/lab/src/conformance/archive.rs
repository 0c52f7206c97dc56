//! Several container images in one tar file, with shared layers: `ctr images import` unpacks each layer once.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::container_image::{append, architecture, header};

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/";

#[derive(Debug)]
pub(super) enum Layer {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// Layers are indexes into the archive's, lowest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) reference: String,
    pub(super) layers: Vec<usize>,
    pub(super) entrypoint: Vec<&'static str>,
    pub(super) arguments: Vec<&'static str>,
    /// Empty for root.
    pub(super) user: &'static str,
}

pub(super) fn write(path: &Path, layers: &[Layer], images: &[Image]) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(std::fs::File::create(path)?);
    let mut digests = Vec::new();
    for layer in layers {
        let digest = match layer {
            Layer::File(file) => append_file(&mut archive, file)?,
            Layer::Bytes(bytes) => {
                let digest = crate::container_image::sha256_hex(bytes);
                append(&mut archive, &format!("{digest}.tar"), bytes, 0o644)?;
                digest
            }
        };
        digests.push(digest);
    }
    let mut manifest = Vec::new();
    for image in images {
        let own: Vec<&String> = image.layers.iter().filter_map(|layer| digests.get(*layer)).collect();
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": image.entrypoint, "Cmd": image.arguments, "User": image.user,
                "Env": [PATH], "WorkingDir": "/",
            },
            "rootfs": { "type": "layers", "diff_ids": own.iter().map(|it| format!("sha256:{it}")).collect::<Vec<_>>() },
            // Distinguishes images with the same layers.
            "history": own.iter().map(|_| json!({ "created_by": image.reference })).collect::<Vec<_>>(),
        })
        .to_string();
        let name = format!("{}.json", crate::container_image::sha256_hex(config.as_bytes()));
        append(&mut archive, &name, config.as_bytes(), 0o644)?;
        let files: Vec<String> = own.iter().map(|digest| format!("{digest}.tar")).collect();
        manifest.push(json!({ "Config": name, "RepoTags": [image.reference], "Layers": files }));
    }
    append(&mut archive, "manifest.json", json!(manifest).to_string().as_bytes(), 0o644)?;
    archive.into_inner()?.sync_all()
}

/// A layer that is too large for memory.
fn append_file(archive: &mut tar::Builder<std::fs::File>, path: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = Sha256::new();
    let mut part = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut part)?;
        if read == 0 {
            break;
        }
        hash.update(part.get(..read).unwrap_or_default());
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    file.rewind()?;
    let size = file.metadata()?.len();
    archive.append_data(&mut header(tar::EntryType::Regular, 0o644, size), format!("{digest}.tar"), file)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_share_layers_in_one_archive() {
        let file = std::env::temp_dir().join(format!("archive-test-{}", std::process::id()));
        let base = std::env::temp_dir().join(format!("archive-test-{}-base", std::process::id()));
        std::fs::write(&base, b"base").unwrap();
        let image = |reference: &str, layers: &[usize]| Image {
            reference: reference.into(),
            layers: layers.to_vec(),
            ..Image::default()
        };
        let layers = [Layer::File(base.clone()), Layer::Bytes(b"own".to_vec())];
        write(&file, &layers, &[image("a:1", &[0]), image("b:1", &[0, 1])]).unwrap();
        let mut archive = tar::Archive::new(std::fs::File::open(&file).unwrap());
        let mut manifest = String::new();
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            names.push(entry.path().unwrap().display().to_string());
            if names.last().is_some_and(|name| name == "manifest.json") {
                entry.read_to_string(&mut manifest).unwrap();
            }
        }
        let _ = std::fs::remove_file(&file);
        let _ = std::fs::remove_file(&base);
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let shared = format!("{}.tar", crate::container_image::sha256_hex(b"base"));
        assert_eq!(manifest[0]["Layers"], json!([shared]));
        assert_eq!(manifest[1]["Layers"][0], json!(shared));
        assert_eq!(names.iter().filter(|name| **name == shared).count(), 1);
        assert_ne!(manifest[0]["Config"], manifest[1]["Config"]);
    }
}
