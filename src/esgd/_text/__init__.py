"""Values as text: for people, for JSON, and for notebooks."""
