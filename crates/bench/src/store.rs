//! Storage of figures: `bench/<file>.json` below cargo's target directory, one JSON list per file.

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::{BenchError, Figure};

/// Directory for figures: `bench` below CARGO_TARGET_DIR, or below `target` of the current workspace.
pub fn figures_directory() -> Result<PathBuf, BenchError> {
    // Set by `cargo run`; without it, search from the current directory.
    let start = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| env::current_dir().ok());
    let workspace = start.as_deref().and_then(workspace_of);
    target_directory(env::var_os("CARGO_TARGET_DIR").map(PathBuf::from), workspace)
}

/// Writes the figures to `<figures_directory>/<file>.json` and returns that path.
pub fn write_figures(file: &str, figures: &[Figure]) -> Result<PathBuf, BenchError> {
    write_figures_in(&figures_directory()?, file, figures)
}

/// Writes the figures to `<directory>/<file>.json`, atomically.
pub fn write_figures_in(directory: &Path, file: &str, figures: &[Figure]) -> Result<PathBuf, BenchError> {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || sign == '-' || sign == '_';
    if file.is_empty() || !file.chars().all(plain) {
        return Err(BenchError::FileName { name: file.to_owned() });
    }
    let path = directory.join(format!("{file}.json"));
    // In the same directory: a rename is atomic only within one file system.
    let draft = directory.join(format!(".{file}.json.{}", std::process::id()));
    let written = fs::create_dir_all(directory)
        .and_then(|()| write_whole(&draft, figures))
        .and_then(|()| fs::rename(&draft, &path));
    match written {
        Ok(()) => Ok(path),
        Err(source) => {
            // Report the first error.
            let _ = fs::remove_file(&draft);
            Err(BenchError::Write { path, source })
        }
    }
}

fn write_whole(path: &Path, figures: &[Figure]) -> std::io::Result<()> {
    let mut text = serde_json::to_string_pretty(figures)?;
    text.push('\n');
    let mut file = fs::File::create(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn target_directory(target: Option<PathBuf>, workspace: Option<PathBuf>) -> Result<PathBuf, BenchError> {
    let target = match (target, workspace) {
        (Some(target), _) if target.is_absolute() => target,
        // A benchmark runs in its package's directory; a relative target directory is relative to the workspace.
        (target, Some(workspace)) => workspace.join(target.unwrap_or_else(|| "target".into())),
        (Some(target), None) => target,
        (None, None) => return Err(BenchError::NoDirectory),
    };
    Ok(target.join("bench"))
}

/// The nearest directory with a lock file, from `start` upwards: the root of the workspace.
fn workspace_of(start: &Path) -> Option<PathBuf> {
    start.ancestors().find(|directory| directory.join("Cargo.lock").is_file()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_cargos_target_directory() {
        let path = |text: &str| Some(PathBuf::from(text));
        let of = |target, workspace| target_directory(target, workspace).ok();
        assert_eq!(of(None, path("/ws")), path("/ws/target/bench"));
        assert_eq!(of(path("/big/disk"), path("/ws")), path("/big/disk/bench"));
        assert_eq!(of(path("out"), path("/ws")), path("/ws/out/bench"));
        assert_eq!(of(path("out"), None), path("out/bench"));
        assert!(target_directory(None, None).is_err());
    }

    #[test]
    fn the_workspace_is_found_from_a_package() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(workspace_of(&package.join("src")).as_deref(), package.parent().and_then(Path::parent));
    }
}
