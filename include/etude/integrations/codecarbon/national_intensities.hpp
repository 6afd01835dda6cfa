#pragma once

#include <string_view>

namespace etude::inline v0::detail {

/// The life-cycle emissions of a country's electricity in g of CO2 equivalents per kWh.
struct NationalIntensity {
  std::string_view iso_code, name;
  double g_per_kwh;
};

/// For the year 2023, from Our World in Data, based on Ember and the Energy Institute's Statistical Review of
/// World Energy ("Carbon intensity of electricity generation", CC BY 4.0); only countries with figures for
/// that year.
inline constexpr NationalIntensity national_intensities[] = {
    {"ARG", "Argentina", 354.103},
    {"AUS", "Australia", 548.692},
    {"AUT", "Austria", 110.812},
    {"BEL", "Belgium", 138.107},
    {"BGD", "Bangladesh", 691.411},
    {"BGR", "Bulgaria", 335.334},
    {"BIH", "Bosnia and Herzegovina", 600.0},
    {"BOL", "Bolivia", 531.687},
    {"BRA", "Brazil", 98.348},
    {"CAN", "Canada", 170.043},
    {"CHE", "Switzerland", 34.843},
    {"CHL", "Chile", 291.113},
    {"CHN", "China", 582.317},
    {"COL", "Colombia", 259.511},
    {"CRI", "Costa Rica", 53.378},
    {"CYP", "Cyprus", 534.323},
    {"CZE", "Czechia", 449.724},
    {"DEU", "Germany", 380.95},
    {"DNK", "Denmark", 151.65},
    {"ECU", "Ecuador", 150.224},
    {"EGY", "Egypt", 570.306},
    {"ESP", "Spain", 174.05},
    {"EST", "Estonia", 416.667},
    {"FIN", "Finland", 79.158},
    {"FRA", "France", 56.039},
    {"GBR", "United Kingdom", 237.589},
    {"GEO", "Georgia", 167.594},
    {"GRC", "Greece", 336.574},
    {"HRV", "Croatia", 204.962},
    {"HUN", "Hungary", 204.19},
    {"IND", "India", 713.441},
    {"IRL", "Ireland", 290.805},
    {"IRN", "Iran", 655.125},
    {"ITA", "Italy", 330.718},
    {"JPN", "Japan", 485.392},
    {"KAZ", "Kazakhstan", 821.391},
    {"KEN", "Kenya", 70.492},
    {"KOR", "South Korea", 430.567},
    {"KWT", "Kuwait", 649.163},
    {"LTU", "Lithuania", 160.072},
    {"LUX", "Luxembourg", 105.263},
    {"LVA", "Latvia", 123.2},
    {"MAR", "Morocco", 630.014},
    {"MDA", "Moldova", 643.464},
    {"MEX", "Mexico", 507.245},
    {"MKD", "North Macedonia", 565.345},
    {"MLT", "Malta", 459.144},
    {"MMR", "Myanmar", 398.898},
    {"MNE", "Montenegro", 417.073},
    {"MNG", "Mongolia", 775.309},
    {"NGA", "Nigeria", 523.247},
    {"NLD", "Netherlands", 267.622},
    {"NOR", "Norway", 30.08},
    {"NZL", "New Zealand", 112.758},
    {"OMN", "Oman", 564.635},
    {"PAK", "Pakistan", 440.608},
    {"PER", "Peru", 266.478},
    {"PHL", "Philippines", 610.688},
    {"POL", "Poland", 661.926},
    {"PRT", "Portugal", 165.553},
    {"PRY", "Paraguay", 23.755},
    {"QAT", "Qatar", 602.5},
    {"ROU", "Romania", 240.583},
    {"RUS", "Russia", 441.039},
    {"SGP", "Singapore", 470.783},
    {"SLV", "El Salvador", 271.468},
    {"SRB", "Serbia", 636.062},
    {"SVK", "Slovakia", 116.774},
    {"SVN", "Slovenia", 231.275},
    {"SWE", "Sweden", 40.695},
    {"THA", "Thailand", 549.583},
    {"TUN", "Tunisia", 563.956},
    {"TUR", "Turkey", 464.586},
    {"TWN", "Taiwan", 642.378},
    {"URY", "Uruguay", 128.788},
    {"USA", "United States", 369.473},
    {"VNM", "Vietnam", 475.449},
    {"ZAF", "South Africa", 707.686},
};

/// The world average in g of CO2 equivalents per kWh: International Energy Agency, Global Energy and CO2
/// Status Report 2019, for the year 2018.
inline constexpr double world_intensity = 475;

}  // namespace etude::inline v0::detail
