"""Reading and staging of tables; knows no spec."""
