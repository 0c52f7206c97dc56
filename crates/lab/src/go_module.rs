//! Programs from Go modules: from a directory that the user names, from the cache, or built.
//!
//! A module's `go.mod` pins the version; its `go.sum` is committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::directories::{CACHE_VARIABLE, Directories, KUBERNETES_VARIABLE, require_space};
use crate::error::{Error, Result, write_file};
use crate::process::lines_of;
use crate::progress::Progress;

const MIN_GO_WITH_TOOLCHAIN_DOWNLOAD: (u32, u32) = (1, 21);

#[derive(Debug)]
pub(crate) struct GoModule {
    /// For messages.
    pub(crate) name: &'static str,
    /// The module whose version counts.
    pub(crate) pinned: &'static str,
    /// In the cache, and in `lab/` of the repository.
    pub(crate) dir: &'static str,
    /// Names and contents; the first is `go.mod`.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Arguments of `go build`.
    pub(crate) targets: &'static [&'static str],
    /// Programs built by `go test -c`, with their packages.
    pub(crate) test_programs: &'static [(&'static str, &'static str)],
    /// Programs that the build must produce.
    pub(crate) programs: &'static [&'static str],
    /// Go variables that the linker sets to the version.
    pub(crate) version_variables: fn(version: &str) -> Vec<(&'static str, String)>,
    /// Disk space of the module and its build cache.
    pub(crate) space_mib: u64,
}

impl GoModule {
    fn declaration(&self) -> &'static str {
        self.files.first().map_or("", |(_, text)| text)
    }

    /// The pinned version, from `go.mod`.
    pub(crate) fn version(&self) -> &'static str {
        self.declaration()
            .lines()
            .find_map(|line| line.trim().trim_start_matches("require ").strip_prefix(self.pinned)?.strip_prefix(' '))
            .map_or("unknown", |rest| rest.split_whitespace().next().unwrap_or("unknown"))
    }

    /// The directory of all programs; builds them if necessary.
    pub(crate) fn ensure(&self, directories: &Directories, progress: &Progress) -> Result<PathBuf> {
        let base = directories.cache().join(self.dir);
        let dir = base.join(format!("{}-{}", self.version(), self.recipe_hash()));
        if dir.exists() {
            return Ok(dir);
        }
        require_space(&base, &format!("{} and its build cache", self.name), self.space_mib, CACHE_VARIABLE)?;
        let lock_path = base.join("build.lock");
        let lock =
            std::fs::File::create(&lock_path).map_err(Error::io(format!("cannot write {}", lock_path.display())))?;
        lock.lock().map_err(Error::io(format!("cannot lock {}", lock_path.display())))?;
        if dir.exists() {
            return Ok(dir);
        }
        let step = format!("{} {} from source", self.name, self.version());
        progress.step(&step, || self.build(&base, &dir, |line| progress.note(&step, line)))?;
        Ok(dir)
    }

    /// Uses a directory that the user named; fails if it lacks a program.
    pub(crate) fn use_dir(&self, dir: PathBuf) -> Result<PathBuf> {
        let missing: Vec<&str> = self.programs.iter().copied().filter(|program| !dir.join(program).is_file()).collect();
        if missing.is_empty() && dir.is_absolute() {
            return Ok(dir);
        }
        Err(Error::Invalid(if missing.is_empty() {
            format!("{KUBERNETES_VARIABLE}={} must be an absolute path", dir.display())
        } else {
            format!(
                "{KUBERNETES_VARIABLE}={} lacks {}; put them there, or unset the variable to build {}",
                dir.display(),
                missing.join(", "),
                self.name
            )
        }))
    }

    fn recipe_hash(&self) -> String {
        let hash = self.files.iter().fold(Sha256::new(), |hash, (_, text)| hash.chain_update(text));
        // A cache of before lacks a program that was added since.
        let hash = self.programs.iter().fold(hash, |hash, program| hash.chain_update(program).chain_update([0]));
        hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    fn build(&self, base: &Path, dir: &Path, note: impl Fn(&str)) -> Result<()> {
        let source = base.join("source");
        for (name, text) in self.files {
            write_file(&source.join(name), text)?;
        }
        let unfinished = base.join("unfinished");
        let _ = std::fs::remove_dir_all(&unfinished);
        crate::error::create_dir(&unfinished)?;

        self.go(base, &["build"], &unfinished, self.targets, &note)?;
        for (program, package) in self.test_programs {
            self.go(base, &["test", "-c", "-vet=off"], &unfinished.join(program), &[package], &note)?;
        }
        for program in self.programs {
            if !unfinished.join(program).is_file() {
                return Err(Error::Invalid(format!(
                    "the build of {} produced no {program}; check that lab/{}/go.mod lists it",
                    self.name, self.dir
                )));
            }
        }
        std::fs::rename(&unfinished, dir).map_err(Error::io(format!("cannot move the programs to {}", dir.display())))
    }

    /// Runs go and reports progress every 100 packages.
    fn go(
        &self,
        base: &Path,
        subcommand: &[&str],
        output: &Path,
        packages: &[&str],
        note: &impl Fn(&str),
    ) -> Result<()> {
        let mut go = Command::new("go");
        go.args(subcommand)
            .args(["-v", "-trimpath", "-buildvcs=false", "-ldflags", &self.linker_flags(), "-o"])
            .arg(output)
            .args(packages)
            .current_dir(base.join("source"))
            .env("CGO_ENABLED", "0")
            .envs(self.toolchain()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = go.spawn().map_err(|error| self.go_missing(error))?;
        let mut lines = Vec::new();
        let mut compiled = 0_u32;
        if let Some(stderr) = child.stderr.take() {
            for line in lines_of(stderr) {
                if line.contains(' ') {
                    lines.push(line);
                } else {
                    compiled += 1;
                    if compiled.is_multiple_of(100) {
                        note(&format!("{compiled} packages compiled, now {line}"));
                    }
                }
            }
        }
        let status = child.wait().map_err(Error::io("cannot wait for go"))?;
        if status.success() { Ok(()) } else { Err(self.explain(base, &lines)) }
    }

    fn linker_flags(&self) -> String {
        (self.version_variables)(self.version())
            .into_iter()
            .fold("-s -w".to_owned(), |flags, (name, value)| format!("{flags} -X {name}={value}"))
    }

    /// Allows an older Go to download the version that the module needs; fails if it cannot.
    fn toolchain(&self) -> Result<BTreeMap<&'static str, &'static str>> {
        let output = Command::new("go").args(["env", "GOVERSION"]).output().map_err(|error| self.go_missing(error))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let needed = self.declaration().lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default();
        match (numbers(text.trim_start_matches("go")), numbers(needed)) {
            (Some(have), Some(need)) if have >= need => Ok(BTreeMap::new()),
            (Some(have), _) if have >= MIN_GO_WITH_TOOLCHAIN_DOWNLOAD => Ok(BTreeMap::from([("GOTOOLCHAIN", "auto")])),
            _ => Err(Error::MissingTool {
                program: format!("Go {needed}"),
                purpose: format!("it builds {} {}; found {text:?}", self.name, self.version()),
                remedy: format!(
                    "install Go {needed} (Go 1.21 and later download it automatically), or set {KUBERNETES_VARIABLE} to a directory with the binaries"
                ),
            }),
        }
    }

    fn go_missing(&self, error: std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::NotFound {
            Error::MissingTool {
                program: "go".into(),
                purpose: format!("it builds {} {} from its modules", self.name, self.version()),
                remedy: format!(
                    "apt-get install golang-go, `make prerequisites`, or set {KUBERNETES_VARIABLE} to a directory with the binaries"
                ),
            }
        } else {
            Error::Io { context: "cannot run go".into(), source: error }
        }
    }

    fn explain(&self, base: &Path, lines: &[String]) -> Error {
        let find = |words: &[&str]| lines.iter().find(|line| words.iter().any(|word| line.contains(word))).cloned();
        let what = format!("the modules of {} {}", self.name, self.version());
        if find(&["no space left on device"]).is_some() {
            let free_mib = crate::directories::free_mib(base).unwrap_or(0);
            return Error::DiskFull {
                path: base.to_owned(),
                what,
                needed_mib: self.space_mib,
                free_mib,
                variable: CACHE_VARIABLE,
            };
        }
        if let Some(cause) = find(&[
            "dial tcp",
            "lookup ",
            "proxyconnect",
            "Forbidden",
            "connection refused",
            "i/o timeout",
            "module lookup disabled",
        ]) {
            return Error::Unreachable {
                what,
                cause,
                remedy: "check the network and `go env GOPROXY`, then retry".into(),
            };
        }
        let cause = lines.last().cloned().unwrap_or_else(|| "go printed nothing".into());
        Error::Unreachable {
            what,
            cause,
            remedy: format!(
                "run `go build {}` in {} for details",
                self.targets.join(" "),
                base.join("source").display()
            ),
        }
    }
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: GoModule = GoModule {
        name: "Small",
        pinned: "example.org/small",
        dir: "small",
        files: &[("go.mod", "module x\n\ngo 1.25.0\n\nrequire example.org/small v1.2.3\n")],
        targets: &["."],
        test_programs: &[],
        programs: &["small"],
        version_variables: |version| vec![("example.org/small.Version", version.to_owned())],
        space_mib: 1,
    };

    #[test]
    fn the_version_is_read_from_go_mod() {
        assert_eq!(SMALL.version(), "v1.2.3");
        assert_eq!(SMALL.linker_flags(), "-s -w -X example.org/small.Version=v1.2.3");
    }

    #[test]
    fn a_directory_without_the_programs_is_rejected() {
        let message = SMALL.use_dir(std::env::temp_dir().join("nothing-here")).unwrap_err().to_string();
        assert!(message.contains("lacks small") && message.contains(KUBERNETES_VARIABLE), "{message}");
    }

    #[test]
    fn a_failed_build_is_explained_in_one_line() {
        let explain = |line: &str| SMALL.explain(&std::env::temp_dir(), &[line.to_owned()]).to_string();
        assert!(explain("go: x@v1: dial tcp: lookup proxy: no such host").contains("check the network"));
        assert!(explain("link: write /x: no space left on device").contains(CACHE_VARIABLE));
        assert!(explain("undefined: x").contains("undefined: x"));
    }
}
