"""Memory for other frameworks: each module needs its framework, which its extra installs."""
