//! The programs that setup and the broker need: where they are and which version.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::SetupError;

/// The oldest Java the broker runs on.
pub const JAVA_NEEDED: u32 = 17;

/// A program that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// Runs the broker.
    Java,
    /// Maven, fetches jars.
    Maven,
    /// Fetches from the JavaScript registry.
    Npm,
    /// Fetches from the Python registry; found as a module of `python3`.
    Pip,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 4] = [Self::Java, Self::Maven, Self::Npm, Self::Pip];

    /// The program that is looked up in `PATH`.
    #[must_use]
    pub fn program(self) -> &'static str {
        match self {
            Self::Java => "java",
            Self::Maven => "mvn",
            Self::Npm => "npm",
            Self::Pip => "python3",
        }
    }

    /// The package that brings it on Debian and its kin.
    #[must_use]
    pub fn debian_package(self) -> &'static str {
        match self {
            Self::Java => "openjdk-17-jre-headless",
            Self::Maven => "maven",
            Self::Npm => "npm",
            Self::Pip => "python3-pip",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pip => "pip",
            other => other.program(),
        })
    }
}

/// A Java that is new enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Java {
    /// The program.
    pub path: PathBuf,
    /// Its version as it prints it, such as `17.0.15`.
    pub version: String,
}

/// Where programs are looked for.
#[derive(Debug, Clone)]
pub struct Tools {
    path: OsString,
    java_home: Option<PathBuf>,
}

impl Tools {
    /// From `PATH` and `JAVA_HOME`.
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            path: env::var_os("PATH").unwrap_or_default(),
            java_home: env::var_os("JAVA_HOME").filter(|home| !home.is_empty()).map(PathBuf::from),
        }
    }

    /// From one directory only.
    #[cfg(test)]
    pub(super) fn in_dir(dir: &Path) -> Self {
        Self { path: dir.as_os_str().to_owned(), java_home: None }
    }

    /// The tool's program, absolute. Java is `JAVA_HOME/bin/java` where that variable is set and right.
    #[must_use]
    pub fn find(&self, tool: Tool) -> Option<PathBuf> {
        if let (Tool::Java, Some(home)) = (tool, &self.java_home) {
            let java = home.join("bin/java");
            if is_executable(&java) {
                return Some(java);
            }
        }
        let found =
            env::split_paths(&self.path).map(|dir| dir.join(tool.program())).find(|path| is_executable(path))?;
        if tool == Tool::Pip && !succeeds(Command::new(&found).args(["-m", "pip", "--version"])) {
            return None;
        }
        std::path::absolute(found).ok()
    }

    /// Where each of `tools` is, in their order.
    ///
    /// # Errors
    /// [`SetupError::MissingTools`] naming all that are missing.
    pub fn require(&self, tools: &[Tool]) -> Result<Vec<PathBuf>, SetupError> {
        let found: Vec<_> = tools.iter().map(|tool| self.find(*tool)).collect();
        let missing: Vec<_> =
            tools.iter().zip(&found).filter(|(_, path)| path.is_none()).map(|(tool, _)| *tool).collect();
        if missing.is_empty() {
            Ok(found.into_iter().flatten().collect())
        } else {
            Err(SetupError::MissingTools { tools: missing })
        }
    }

    /// The Java that runs the broker.
    ///
    /// # Errors
    /// When there is none, it does not answer, or it is older than [`JAVA_NEEDED`].
    pub fn java(&self) -> Result<Java, SetupError> {
        let path = self.find(Tool::Java).ok_or(SetupError::MissingTools { tools: vec![Tool::Java] })?;
        let said = match Command::new(&path).arg("-version").stdin(Stdio::null()).output() {
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        let Some((version, major)) = java_version(&said) else {
            return Err(SetupError::BrokenJava { path, said: said.trim().to_owned() });
        };
        if major < JAVA_NEEDED {
            return Err(SetupError::OldJava { path, version });
        }
        Ok(Java { path, version })
    }

    /// First line of what the tool says to `--version`, or none when it is missing or broken.
    #[must_use]
    pub fn version(&self, tool: Tool) -> Option<String> {
        let program = self.find(tool)?;
        let arguments: &[&str] = match tool {
            Tool::Java => &["-version"],
            Tool::Maven => &["-B", "--version"],
            Tool::Npm => &["--version"],
            Tool::Pip => &["-m", "pip", "--version"],
        };
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
        let said = if tool == Tool::Java { output.stderr } else { output.stdout };
        let said = String::from_utf8_lossy(&said);
        match tool {
            Tool::Java => java_version(&said).map(|(version, _)| version),
            _ => said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned),
        }
    }
}

/// Version and major number from `java -version`, whose first line is like `openjdk version "17.0.15" 2025-04-15`.
fn java_version(said: &str) -> Option<(String, u32)> {
    let line = said.lines().find(|line| line.contains(" version \""))?;
    let version = line.split('"').nth(1)?;
    let mut numbers = version.split(['.', '-', '+', '_']).map(str::parse::<u32>);
    let major = match numbers.next()?.ok()? {
        1 => numbers.next()?.ok()?,
        major => major,
    };
    Some((version.to_owned(), major))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use weir_model::error::Coded as _;

    use super::super::testing::script;
    use super::*;

    #[test]
    fn java_says_its_version_in_many_ways() {
        let version = |text: &str| java_version(text).map(|(_, major)| major);
        assert_eq!(version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime"), Some(17));
        assert_eq!(version("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(version("java version \"1.8.0_392\""), Some(8));
        assert_eq!(version("openjdk version \"25-ea\" 2025-09-16"), Some(25));
        assert_eq!(version("Segmentation fault"), None);
    }

    #[test]
    fn all_missing_tools_are_named_at_once_with_one_command() {
        let dir = tempfile::tempdir().unwrap();
        let error = Tools::in_dir(dir.path()).require(&Tool::ALL).unwrap_err();
        assert_eq!(error.code(), "missing_tools");
        assert_eq!(error.to_string(), "not installed: java, mvn, npm, pip");
        let command = "apt-get install -y openjdk-17-jre-headless maven npm python3-pip";
        assert_eq!(error.hint().as_deref(), Some(command));
    }

    #[test]
    fn a_python_without_pip_is_a_missing_pip() {
        let dir = tempfile::tempdir().unwrap();
        script(dir.path(), "python3", "echo 'No module named pip' >&2; exit 1");
        assert_eq!(Tools::in_dir(dir.path()).find(Tool::Pip), None);
    }

    #[test]
    fn a_file_that_cannot_be_run_is_no_program() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("npm"), "").unwrap();
        std::fs::create_dir(dir.path().join("mvn")).unwrap();
        let tools = Tools::in_dir(dir.path());
        assert_eq!((tools.find(Tool::Npm), tools.find(Tool::Maven)), (None, None));
    }

    #[test]
    fn an_old_or_broken_java_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let tools = Tools::in_dir(dir.path());
        script(dir.path(), "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2");
        let error = tools.java().unwrap_err();
        assert!(error.to_string().ends_with("is Java 11.0.2, the broker needs 17 or newer"), "{error}");
        script(dir.path(), "java", "echo 'no libjvm.so' >&2; exit 1");
        let error = tools.java().unwrap_err();
        assert!(error.to_string().ends_with("does not answer -version: no libjvm.so"), "{error}");
    }

    #[test]
    fn java_home_comes_before_the_path() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("jdk");
        std::fs::create_dir_all(home.join("bin")).unwrap();
        script(dir.path(), "java", "echo 'openjdk version \"17.0.1\"' >&2");
        let tools = Tools { java_home: Some(home.clone()), ..Tools::in_dir(dir.path()) };
        assert_eq!(tools.java().unwrap().version, "17.0.1", "a JAVA_HOME without java is passed over");
        script(&home.join("bin"), "java", "echo 'openjdk version \"21.0.4\"' >&2");
        assert_eq!(tools.java().unwrap(), Java { path: home.join("bin/java"), version: "21.0.4".to_owned() });
    }
}
