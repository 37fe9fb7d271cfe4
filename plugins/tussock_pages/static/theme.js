// Airflow stores the user's theme under this key at the same origin. Without it, the stylesheet follows the system theme.
const follow = () => {
  const theme = localStorage.getItem("theme");
  document.documentElement.dataset.theme = theme === "light" || theme === "dark" ? theme : "system";
};
follow();
addEventListener("storage", follow);
