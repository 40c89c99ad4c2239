# libattend.so: the objects of every floor in one library. The floors' own targets stay static, since tests use symbols
# that the shared library hides.
get_property(attend_floors GLOBAL PROPERTY ATTEND_FLOORS)
if(NOT BUILD_SHARED_LIBS)
  return()
endif()

set(attend_floor_objects ${attend_floors})
list(TRANSFORM attend_floor_objects REPLACE "(.+)" "$<TARGET_OBJECTS:attend_\\1>")
add_library(attend_shared SHARED ${attend_floor_objects})
add_library(attend::attend ALIAS attend_shared)
set_target_properties(attend_shared PROPERTIES
  OUTPUT_NAME attend
  EXPORT_NAME attend
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
  VERSION ${PROJECT_VERSION}
  # Before 1.0 a minor version may break compatibility.
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_include_directories(attend_shared PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(attend_shared PUBLIC cxx_std_20)
# Adds the external dependencies of the floors. The floors' archives are linked too, but all their symbols are already
# defined.
list(TRANSFORM attend_floors PREPEND attend_ OUTPUT_VARIABLE attend_floor_targets)
target_link_libraries(attend_shared PRIVATE ${attend_floor_targets})
target_link_options(attend_shared PRIVATE LINKER:--no-undefined LINKER:--exclude-libs,ALL)
