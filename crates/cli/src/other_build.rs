//! Other builds of this command, in which some of the lab's experiments run: on simulated machines,
//! or with traces of the pages that are visited.
//!
//! They are the same sources compiled with a `--cfg`, each kept in a folder of its own in Cargo's
//! target directory. If `cargo run` started this command, Cargo brings the other build up to date;
//! otherwise it must exist.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use duramen_lab::Calibrated;

use crate::failure::{Failure, Result};
use crate::progress::Narrator;

/// The profile of these builds. What is measured in them, virtual time and visited pages, does not
/// depend on how well they are optimized.
const PROFILE: &str = "instrumented";

/// Another build of this command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Build {
    /// Simulated threads on simulated machines.
    Machine,
    /// Records the pages that are visited.
    #[cfg_attr(duramen_trace, allow(dead_code, reason = "the trace build does not start itself"))]
    Trace,
}

impl Build {
    /// Its folder in the target directory, which is also what it is called.
    const fn folder(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Trace => "trace",
        }
    }

    const fn cfg(self) -> &'static str {
        match self {
            // The build of `cargo sim`, which has the planted bugs.
            Self::Machine => "--cfg duramen_machine --cfg duramen_planted",
            Self::Trace => "--cfg duramen_trace",
        }
    }
}

/// Runs another build with `args`; it inherits the standard streams.
pub(crate) fn run(build: Build, args: &[&str], narrator: Narrator) -> Result<()> {
    let binary = binary(build, narrator)?;
    let failed = |error| Failure::Run(format!("cannot start `{}`: {error}", binary.display()));
    let status = Command::new(&binary).args(args).status().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    let folder = build.folder();
    Err(Failure::Run(format!("the experiments in the {folder} build failed; the reason is above")))
}

/// Returns what the machine build measures for `lab calibrate`.
pub(crate) fn calibrated(narrator: Narrator) -> Result<Vec<Calibrated>> {
    let binary = binary(Build::Machine, narrator)?;
    narrator.say("measuring on the simulated machine");
    let output =
        Command::new(&binary).args(["lab", "calibrate", "--json"]).stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::Run(format!("cannot start `{}`: {error}", binary.display())))?;
    if !output.status.success() {
        return Err(Failure::Run("measuring on the simulated machine failed; the reason is above".to_owned()));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let parsed: std::result::Result<_, _> = lines.lines().map(serde_json::from_str).collect();
    parsed.map_err(|error| Failure::Run(format!("the machine build printed an invalid measurement: {error}")))
}

fn binary(build: Build, narrator: Narrator) -> Result<PathBuf> {
    let folder = build.folder();
    let own =
        env::current_exe().map_err(|error| Failure::Run(format!("cannot find the path of this program: {error}")))?;
    // `target/release/duramen` -> `target/FOLDER/instrumented/duramen`
    let target = own.ancestors().nth(2).unwrap_or(Path::new(".")).join(folder);
    let binary = target.join(PROFILE).join(own.file_name().unwrap_or_default());
    let (Some(cargo), Some(manifest)) = (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR")) else {
        return if binary.exists() {
            Ok(binary)
        } else {
            Err(Failure::Usage(format!(
                "these experiments need the {folder} build, which is missing at `{}`; start the command with `cargo \
                 run --release -- lab run ...`, which builds it",
                binary.display()
            )))
        };
    };
    narrator.say(&format!("updating the {folder} build (some minutes the first time)"));
    let mut command = Command::new(cargo);
    command.arg("build").arg("--manifest-path").arg(Path::new(&manifest).join("Cargo.toml"));
    command.args(["--profile", PROFILE, "--quiet", "--target-dir"]).arg(&target).env("RUSTFLAGS", build.cfg());
    let status = command.status().map_err(|error| Failure::Run(format!("cannot start Cargo: {error}")))?;
    if status.success() { Ok(binary) } else { Err(Failure::Run(format!("the {folder} build failed"))) }
}
