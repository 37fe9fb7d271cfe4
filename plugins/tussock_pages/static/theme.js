// Airflow keeps its reader's choice of theme under this name, at this very origin. Without one, the stylesheet goes by the system's.
const follow = () => {
  const theme = localStorage.getItem("theme");
  document.documentElement.dataset.theme = theme === "light" || theme === "dark" ? theme : "system";
};
follow();
addEventListener("storage", follow);
